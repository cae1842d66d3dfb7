// Copies of rows that may be far apart, between element types.
#pragma once

#include <algorithm>

#include "runtime/simd.h"

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

// Each of these rows = `row`, in their type; zeros where it is null. A bias, before a product adds.
template <class From, class To>
void fill_rows(i64 rows, i64 columns, const From* row, To* to, i64 to_row) {
  for (i64 i = 0; i < rows; ++i, to += to_row) {
    if (row == nullptr) {
      std::fill_n(to, columns, To{});
    } else {
      convert_all(columns, row, to);
    }
  }
}

}  // namespace weft
