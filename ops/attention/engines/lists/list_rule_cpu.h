// Filling lists by a rule, on the CPU.
#pragma once

#include "ops/attention/engines/lists/list_rule.h"
#include "runtime/device.h"
#include "runtime/parallel.h"

namespace weft {

template <class Rule>
void fill_lists(const Cpu&, const RuledLists<Rule>& ruled) {
  constexpr i64 work = 100;  // of a line
  parallel_for(ruled.calls(), work, [&](i64 call) { ruled.count(call); });
  for (i64 list = 0; list < 3 * ruled.sheets(); ++list) {
    std::int32_t* const starts = ruled.starts_of(list % 3, list / 3);
    starts[0] = 0;
    for (i64 line = 0; line < ruled.size_of_starts(list % 3); ++line) {
      starts[line + 1] += starts[line];
    }
  }
  parallel_for(ruled.calls(), work, [&](i64 call) { ruled.fill(call); });
}

}  // namespace weft
