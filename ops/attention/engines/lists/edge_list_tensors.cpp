// Memory for lists of edges, and lists of any edges.
#include "ops/attention/engines/lists/edge_list_tensors.h"

#include <algorithm>

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

namespace {

using Sheet = std::vector<std::vector<Edge>>;

void count(const Sheet& sheet, EdgeListSizes& most) {
  i64 edges = 0, runs = 0;
  std::vector<i64> out(std::size_t(most.keys), 0);
  for (const std::vector<Edge>& list : sheet) {
    for (std::size_t e = 0; e < list.size(); ++e) {
      const i64 key = list[e].from;
      require(0 <= key && key < most.keys, "lists: an edge comes from key {}, wanted 0 … {}", key,
              most.keys - 1);
      most.longest_out = std::max(most.longest_out, ++out[std::size_t(key)]);
      runs += e == 0 || list[e].type != list[e - 1].type;
    }
    edges += std::ssize(list);
    most.longest = std::max(most.longest, i64(std::ssize(list)));
  }
  most.edges = std::max(most.edges, edges);
  most.runs = std::max(most.runs, runs);
}

// Writes a sheet to `to`: its lists, then their transpose, in which rows are ascending.
void fill(const Sheet& sheet, const EdgeLists& to) {
  auto* const starts = const_cast<std::int32_t*>(to.starts);
  auto* const run_starts = const_cast<std::int32_t*>(to.run_starts);
  auto* const from = const_cast<std::int32_t*>(to.from);
  auto* const runs = const_cast<TypeRun*>(to.runs);
  auto* const out_starts = const_cast<std::int32_t*>(to.out_starts);
  auto* const out = const_cast<OutEdge*>(to.out);
  std::fill_n(out_starts, to.keys + 1, 0);
  std::int32_t edge = 0, run = 0;
  for (std::size_t i = 0; i < sheet.size(); ++i) {
    starts[i] = edge, run_starts[i] = run;
    for (std::size_t e = 0; e < sheet[i].size(); ++e, ++edge) {
      const auto type = static_cast<std::int32_t>(sheet[i][e].type);
      if (e == 0 || runs[run - 1].type != type) runs[run++] = {edge, type};
      from[edge] = static_cast<std::int32_t>(sheet[i][e].from);
      ++out_starts[from[edge] + 1];
    }
  }
  starts[sheet.size()] = edge, run_starts[sheet.size()] = run;
  for (i64 j = 0; j < to.keys; ++j) out_starts[j + 1] += out_starts[j];
  std::vector<std::int32_t> next(out_starts, out_starts + to.keys);
  for (i64 i = 0; i < to.rows; ++i) {
    for (std::int32_t e = starts[i]; e < starts[i + 1]; ++e) {
      out[next[std::size_t(from[e])]++] = {static_cast<std::int32_t>(i), e};
    }
  }
}

}  // namespace

EdgeListTensors edge_lists_of(std::span<const Sheet> sheets, i64 items, i64 heads, i64 keys,
                              Device device) {
  require(std::ssize(sheets) == items * heads && !sheets.empty(),
          "lists: wanted {} sheets for {} items and {} heads, got {}", items * heads, items, heads,
          sheets.size());
  EdgeListSizes sizes{.items = items, .heads = heads, .rows = std::ssize(sheets[0]), .keys = keys};
  for (const Sheet& sheet : sheets) {
    require(std::ssize(sheet) == sizes.rows, "lists: wanted {} lists in every sheet, got {}",
            sizes.rows, sheet.size());
    count(sheet, sizes);
  }
  EdgeListTensors lists(sizes, Device{});
  for (i64 number = 0; number < std::ssize(sheets); ++number) {
    fill(sheets[std::size_t(number)], lists.lists().sheet(number / heads, number % heads));
  }
  for (Tensor* const x : {&lists.starts, &lists.from, &lists.run_starts, &lists.runs,
                          &lists.out_starts, &lists.out}) {
    *x = x->to(device);
  }
  return lists;
}

}  // namespace weft
