// Patterns in closed form: every query sees an interval of keys, whose ends are monotonic in the
// query. Windows, blocks on the diagonal, causal masks and summaries of earlier positions are all
// of this kind; other patterns are lists of tiles (tile_lists.h).
#pragma once

#include <algorithm>
#include <limits>

#include "runtime/types.h"

namespace weft {

// bound(i) = max(slope ⌊i / step⌋ + offset, least), for i >= 0; slope >= 0, step >= 1.
struct Staircase {
  static constexpr i64 infinite = std::numeric_limits<i64>::max() / 4;

  i64 slope = 0, step = 1, offset = 0, least = 0;

  constexpr i64 at(i64 i) const {
    return std::max(slope * (step == 1 ? i : i / step) + offset, least);
  }

  // The first i >= 0 whose bound is above j; `infinite` if there is none.
  constexpr i64 first_above(i64 j) const {
    if (least > j || offset > j) return 0;
    if (slope == 0) return infinite;
    const i64 steps = slope == 1 ? j + 1 - offset : (j + slope - offset) / slope;
    return step * steps;
  }
};

// Query i sees the keys first(i) … end(i) − 1; queries and keys are counted along the part's own
// sequences.
struct Band {
  Staircase first = {}, end = {.offset = Staircase::infinite};

  static constexpr Band all() { return {}; }
  // Keys i − before … i + after, none of them below `least`.
  static constexpr Band window(i64 before, i64 after, i64 least = 0) {
    return {.first = {.slope = 1, .offset = -before, .least = least},
            .end = {.slope = 1, .offset = after + 1}};
  }
  static constexpr Band causal() { return {.end = {.slope = 1, .offset = 1}}; }
  // The keys of the query's own block of `size` positions.
  static constexpr Band blocks(i64 size) {
    return {.first = {.slope = size, .step = size},
            .end = {.slope = size, .step = size, .offset = size}};
  }

  // The number of keys that query i sees, of `keys`.
  constexpr i64 count(i64 i, i64 keys) const {
    return std::max<i64>(std::min(end.at(i), keys) - first.at(i), 0);
  }
};

}  // namespace weft
