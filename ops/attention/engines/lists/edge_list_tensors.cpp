// Memory for lists of edges.
#include "ops/attention/engines/lists/edge_list_tensors.h"

namespace weft {

double EdgeListSizes::bytes() const {
  const i64 starts = 2 * (rows + 1) + keys + 1;
  return double(sheets()) * double(sizeof(std::int32_t)) *
         double(starts + edges + 2 * runs + 2 * edges);
}

EdgeListTensors::EdgeListTensors(const EdgeListSizes& s, Device device) : sizes(s) {
  require(s.edges < i64{1} << 31,
          "lists: {} edges are more than 2³¹ − 1; use shorter lists or fewer queries", s.edges);
  const auto integers = [&](i64 count) {
    return Tensor::empty({s.sheets() * count}, DType::i32, device);
  };
  starts = integers(s.rows + 1), run_starts = integers(s.rows + 1);
  out_starts = integers(s.keys + 1);
  from = integers(s.edges), runs = integers(2 * s.runs), out = integers(2 * s.edges);
}

EdgeLists EdgeListTensors::lists() const {
  return {.starts = starts.data<std::int32_t>(),
          .from = from.data<std::int32_t>(),
          .run_starts = run_starts.data<std::int32_t>(),
          .runs = reinterpret_cast<const TypeRun*>(runs.bytes()),
          .out_starts = out_starts.data<std::int32_t>(),
          .out = reinterpret_cast<const OutEdge*>(out.bytes()),
          .items = sizes.items,
          .heads = sizes.heads,
          .rows = sizes.rows,
          .keys = sizes.keys,
          .edges = sizes.edges,
          .run_count = sizes.runs,
          .longest = sizes.longest,
          .longest_out = sizes.longest_out};
}

}  // namespace weft
