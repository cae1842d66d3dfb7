// Ragged lists of edges in kernels, and their transpose.
//
// A sheet holds the lists of all rows (queries), concatenated: list i has the edges starts[i] …
// starts[i + 1] − 1, edge e comes from the key from[e]. Edges have types, given by runs of equal
// ones: the runs of list i are run_starts[i] … run_starts[i + 1] − 1, and each extends from its
// first edge to the beginning of the next one of the row. Adjacent edges of one type, the leaves
// under a node of a tree, cost one run.
//
// The transpose: out_starts[j] … out_starts[j + 1] − 1 are the edges that come from key j, in a
// fixed order; each holds its row, and its number in the sheet, which is the index of its weight.
//
// There is a sheet for each batch item and head, or one for all of either. A key may be in a list
// more than once. Numbers are those within a sheet.
#pragma once

#include <cstdint>

#include "runtime/types.h"

namespace weft {

struct TypeRun {
  std::int32_t first, type;
};

struct OutEdge {
  std::int32_t to, edge;
};

struct EdgeLists {
  const std::int32_t *starts = nullptr, *from = nullptr, *run_starts = nullptr;
  const TypeRun* runs = nullptr;
  const std::int32_t* out_starts = nullptr;
  const OutEdge* out = nullptr;
  i64 items = 1, heads = 1;  // of sheets; 1: the same for all
  i64 rows = 0, keys = 0;
  i64 edges = 0, run_count = 0;      // the capacity of a sheet
  i64 longest = 0, longest_out = 0;  // bounds of the lists' lengths

  // The lists of one batch item and head.
  constexpr EdgeLists sheet(i64 b, i64 h) const {
    const i64 number = (items > 1 ? b : 0) * heads + (heads > 1 ? h : 0);
    EdgeLists one = *this;
    one.starts += number * (rows + 1), one.run_starts += number * (rows + 1);
    one.from += number * edges, one.out += number * edges;
    one.runs += number * run_count;
    one.out_starts += number * (keys + 1);
    return one;
  }
  constexpr i64 length(i64 row) const { return starts[row + 1] - starts[row]; }
  constexpr i64 out_length(i64 key) const { return out_starts[key + 1] - out_starts[key]; }
  // The end of run r of this row.
  constexpr i64 end_of_run(i64 row, i64 r) const {
    return r + 1 < run_starts[row + 1] ? runs[r + 1].first : starts[row + 1];
  }
};

}  // namespace weft
