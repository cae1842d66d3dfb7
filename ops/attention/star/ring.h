// The lists of the satellites, in closed form, as star.h defines them. constexpr functions, for
// both devices.
#pragma once

#include "ops/attention/engines/lists/list_rule.h"
#include "ops/attention/length.h"

namespace weft {

// For the n valid positions of N. Keys: 0 … N − 1 are g, N … 2N − 1 are e, 2N is the relay s, and
// 2N + 1 is the missing neighbour at the ends of an open ring. Ranks: before, itself, after, e, s.
struct Ring {
  i64 N = 0, n = 0;
  bool closed = true;

  static constexpr i64 keys(i64 N, bool closed) { return 2 * N + (closed ? 1 : 2); }
  static constexpr i64 degree = 5;

  constexpr i64 rows() const { return keys(N, closed); }
  constexpr i64 edges(i64 row) const { return row < n ? degree : 0; }
  constexpr i64 runs(i64 row) const { return row < n ? 1 : 0; }
  constexpr i64 before(i64 i) const { return i > 0 ? i - 1 : closed ? n - 1 : 2 * N + 1; }
  constexpr i64 after(i64 i) const { return i + 1 < n ? i + 1 : closed ? 0 : 2 * N + 1; }

  template <class F>
  constexpr void each_edge(i64 row, const F& f) const {
    if (row >= n) return;
    const i64 from[] = {before(row), row, after(row), N + row, 2 * N};
    for (i64 rank = 0; rank < degree; ++rank) f(rank, from[rank], i64{0});
  }
  template <class F>
  constexpr void each_out_edge(i64 key, const F& f) const {
    if (key < N && key < n) {
      if (closed || key + 1 < n) f(after(key), i64{0});
      f(key, i64{1});
      if (closed || key > 0) f(before(key), i64{2});
    } else if (key >= N && key < N + n) {
      f(key - N, i64{3});
    } else if (key == 2 * N) {
      for (i64 i = 0; i < n; ++i) f(i, i64{4});
    } else if (key == 2 * N + 1 && n > 0) {
      f(i64{0}, i64{0});
      f(n - 1, i64{2});
    }
  }
  constexpr i64 out_edges(i64 key) const {
    i64 count = 0;
    each_out_edge(key, [&](i64, i64) { ++count; });
    return count;
  }
};

// The rule of their lists: one sheet for all items, or with lengths one for each.
struct Rings {
  const i64* lengths = nullptr;  // [items], or null
  i64 positions = 0;
  bool closed = true;

  constexpr Ring sheet(i64 item) const {
    return {positions, length_of(lengths, item, positions), closed};
  }
};

template <class Device>
struct RingKernels {
  static void fill(const Device&, const RuledLists<Rings>&);
};

}  // namespace weft
