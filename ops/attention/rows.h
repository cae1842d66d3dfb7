// Rows of one batch item and head, between a tensor [B, N, H, width] and packed memory.
#pragma once

#include <algorithm>

#include "runtime/simd.h"
#include "runtime/transpose.h"
#include "runtime/view.h"

namespace weft {

// Prefetches the cache lines of `count` numbers: rows of one head are a whole position apart, and
// those of a cluster are anywhere, which the hardware prefetcher does not predict. Into L2: rows a
// power of two apart map to a few lines of L1, which would evict them.
template <class T>
void prefetch(const T* from, i64 count) {
  constexpr i64 line = 64 / sizeof(T);
  for (i64 e = 0; e < count; e += line) __builtin_prefetch(from + e, 0, 2);
}

// Copies rows of `width` numbers, scaled, between storage types. Heads can be as short as eight
// numbers and are far apart, so the usual case, contiguous numbers in whole vectors of eight, has
// loops of its own: one for the rows with a row 32 later to prefetch, and one for the last rows.
// `there` counts the tensor's rows from the first copied one on, if known: those after the copied
// ones are prefetched, too, for the next call.
template <class T, class From, class To>
void copy_rows(i64 rows, i64 width, T scale, const From* from, i64 from_row, i64 from_step, To* to,
               i64 to_row, i64 to_step, i64 there = 0) {
  namespace hn = simd::hn;
  const hn::CappedTag<T, 8> d;
  const auto n = static_cast<i64>(hn::Lanes(d));
  constexpr i64 ahead = 32;
  if (from_step == 1 && to_step == 1 && width % n == 0 && width > 0) {
    const auto factor = hn::Set(d, scale);
    const auto copy = [&](const From* x, To* y) {
      simd::store_as(d, hn::Mul(factor, simd::load_as(d, x)), y);
      for (i64 e = n; e < width; e += n) {
        simd::store_as(d, hn::Mul(factor, simd::load_as(d, x + e)), y + e);
      }
    };
    // Contiguous rows are prefetched by hardware.
    const bool scattered = from_row > width;
    const i64 prefetched = (scattered ? from_row : to_row) > width ? std::max(rows, there) : rows;
    i64 i = 0;
    for (; i < rows && i + ahead < prefetched; ++i) {
      scattered ? prefetch(from + (i + ahead) * from_row, width)
                : prefetch(to + (i + ahead) * to_row, width);
      copy(from + i * from_row, to + i * to_row);
    }
    for (; i < rows; ++i) copy(from + i * from_row, to + i * to_row);
    return;
  }
  for (i64 i = 0; i < rows; ++i, from += from_row, to += to_row) {
    for (i64 e = 0; e < width; ++e) {
      to[e * to_step] = convert<To>(scale * convert<T>(from[e * from_step]));
    }
  }
}

// to [rows, width] = scale · x[begin + row, :] for rows of one batch item and head.
template <class S, class T>
void pack_rows(const View<const S, 4>& x, i64 b, i64 h, i64 begin, i64 rows, T scale, T* to) {
  if (rows <= 0) return;
  copy_rows(rows, x.size(3), scale, &x(b, begin, h, 0), x.stride(1), x.stride(3), to, x.size(3),
            i64{1}, x.size(1) - begin);
}

// x[begin + row, :] = scale · from [rows, width], the inverse copy; with `add`, +=.
template <class T, class S>
void unpack_rows(const T* from, i64 b, i64 h, i64 begin, i64 rows, const View<S, 4>& x, T scale = 1,
                 bool add = false) {
  if (rows <= 0) return;
  S* const to = &x(b, begin, h, 0);
  const i64 width = x.size(3), step = x.stride(3);
  if (!add) {
    return copy_rows(rows, width, scale, from, width, i64{1}, to, x.stride(1), step,
                     x.size(1) - begin);
  }
  for (i64 i = 0; i < rows; ++i) {
    S* const row = to + i * x.stride(1);
    for (i64 e = 0; e < width; ++e) {
      row[e * step] = convert<S>(convert<T>(row[e * step]) + scale * from[i * width + e]);
    }
  }
}

// to [width, block] = the transpose of rows [rows, width]; columns from `rows` on are zero.
template <class T>
void transpose_block(const T* rows_data, i64 rows, i64 width, i64 block, T* to) {
  transpose<T>(rows, width, {rows_data, width}, {to, block});
  for (i64 e = 0; rows < block && e < width; ++e) {
    std::fill(to + e * block + rows, to + (e + 1) * block, T(0));
  }
}

// Zeros in rows begin … of one batch item and head.
template <class T>
void clear_rows(const View<T, 4>& x, i64 b, i64 h, i64 begin) {
  for (i64 i = begin; i < x.size(1); ++i) {
    for (i64 e = 0; e < x.size(3); ++e) x(b, i, h, e) = T();
  }
}

}  // namespace weft
