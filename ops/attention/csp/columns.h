// Blocks of channels of [B, N, H, M], channel c = h·M + m, as contiguous columns, and back.
#pragma once

#include <algorithm>

#include "ops/attention/rows.h"
#include "runtime/simd.h"
#include "runtime/transpose.h"
#include "runtime/view.h"

namespace weft {

// Elements of a column of N with padding: columns a power of two apart would map to few cache sets.
template <class T>
constexpr i64 column_room(i64 N) {
  constexpr i64 line = 64 / sizeof(T);
  return (N + line - 1) / line * line + line;
}

namespace columns_detail {

// to[c, r] = from[r, c], r < rows, c < columns, in stripes of a vector along the longer side. Along
// it, rows of `from` (or, if there are more columns, of `to`) are a whole position of the sequence
// apart, which the hardware prefetcher does not predict: they are prefetched.
template <class T>
void turn(i64 rows, i64 columns, const T* from, i64 from_row, T* to, i64 to_row) {
  constexpr i64 stripe = std::max<i64>(8, simd::lanes<T>);
  const bool tall = rows >= columns;
  const i64 length = tall ? rows : columns;
  for (i64 s = 0; s < length; s += stripe) {
    const i64 end = std::min(s + stripe, length);
    const i64 r0 = tall ? s : 0, r1 = tall ? end : rows;
    const i64 c0 = tall ? 0 : s, c1 = tall ? columns : end;
    for (i64 k = end + 8 * stripe; k < std::min(end + 9 * stripe, length); ++k) {
      prefetch(tall ? from + k * from_row : to + k * to_row, tall ? columns : rows);
    }
    transpose<T>(r1 - r0, c1 - c0, {from + r0 * from_row + c0, from_row},
                 {to + c0 * to_row + r0, to_row});
  }
}

// Calls f(i, h, m, run) for the runs of channels c … c + count − 1 that are contiguous in memory.
template <class T, class F>
void each_run(const View<T, 4>& x, i64 c, i64 count, const F& f) {
  const i64 M = x.size(3);
  const bool dense = M == 1 || x.stride(3) == 1;
  const bool whole = dense && (x.size(2) == 1 || x.stride(2) == M);
  for (i64 i = 0; i < count;) {
    const i64 m = (c + i) % M;
    const i64 run = whole ? count - i : dense ? std::min(M - m, count - i) : 1;
    f(i, (c + i) / M, m, run);
    i += run;
  }
}

}  // namespace columns_detail

// columns[i, n] = x[b, begin + n, channel c + i] for n < N.
template <class T>
void pack_columns(const View<const T, 4>& x, i64 b, i64 begin, i64 c, i64 count, i64 N, T* columns,
                  i64 room) {
  using namespace columns_detail;
  each_run(x, c, count, [&](i64 i, i64 h, i64 m, i64 run) {
    turn(N, run, &x(b, begin, h, m), x.stride(1), columns + i * room, room);
  });
}

template <class T>
void unpack_columns(const T* columns, i64 room, i64 b, i64 begin, i64 c, i64 count, i64 N,
                    const View<T, 4>& x) {
  using namespace columns_detail;
  each_run(x, c, count, [&](i64 i, i64 h, i64 m, i64 run) {
    turn(run, N, columns + i * room, room, &x(b, begin, h, m), x.stride(1));
  });
}

// Zeros in these channels from position `begin` on.
template <class T>
void clear_channels(const View<T, 4>& x, i64 b, i64 c, i64 count, i64 begin) {
  const i64 M = x.size(3);
  for (i64 n = begin; n < x.size(1); ++n) {
    for (i64 i = c; i < c + count; ++i) x(b, n, i / M, i % M) = 0;
  }
}

}  // namespace weft
