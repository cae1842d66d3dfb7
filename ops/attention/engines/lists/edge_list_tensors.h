// Lists of edges in tensors.
#pragma once

#include "ops/attention/engines/lists/list_rule.h"
#include "runtime/tensor.h"

namespace weft {

// The sizes of a sheet of lists, and the number of sheets.
struct EdgeListSizes {
  i64 items = 1, heads = 1;
  i64 rows = 0, keys = 0, edges = 0, runs = 0, longest = 0, longest_out = 0;

  i64 sheets() const { return items * heads; }
  double bytes() const;
};

// The lists in memory of a device, all of them i32.
struct EdgeListTensors {
  EdgeListSizes sizes;
  Tensor starts, from, run_starts, runs, out_starts, out;

  // Not initialised. Throws if a sheet has more edges than 32-bit numbers can count.
  EdgeListTensors(const EdgeListSizes& sizes, Device device);
  EdgeLists lists() const;
  // The lists filled by a rule (list_rule.h), whose sheets are at most of these sizes.
  template <class Rule>
  RuledLists<Rule> by_rule(const Rule& rule) const {
    return {rule,
            lists(),
            starts.data<std::int32_t>(),
            from.data<std::int32_t>(),
            run_starts.data<std::int32_t>(),
            out_starts.data<std::int32_t>(),
            reinterpret_cast<TypeRun*>(runs.bytes()),
            reinterpret_cast<OutEdge*>(out.bytes())};
  }
};

}  // namespace weft
