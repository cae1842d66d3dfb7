// Transposes of matrices that are in cache.
#pragma once

#include <cstdint>

#include "runtime/simd.h"
#include "runtime/tensor.h"
#include "runtime/tile.h"

namespace weft {

namespace transpose_detail {

namespace hn = simd::hn;

// A vector whose blocks of 16 bytes are from[0 …], from[step …], from[2 step …], …
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> blocks_at(D d, const T* from, i64 step) {
  if constexpr (hn::MaxLanes(d) * sizeof(T) == 16) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    constexpr auto blocks = static_cast<i64>(hn::MaxLanes(half) * sizeof(T) / 16);
    return hn::Combine(d, blocks_at(half, from + blocks * step, step), blocks_at(half, from, step));
  }
}

// to[j, i] = from[i, j] for as many i as D has lanes, and as many j as 16 bytes hold.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void patch(D d, Rows<const T> from, Rows<T> to) {
  constexpr i64 width = 16 / sizeof(T);
  const auto rows = [&](i64 i) { return blocks_at(d, from.data + i * from.row, width * from.row); };
  const auto a = rows(0), b = rows(1);
  if constexpr (width == 4) {
    const hn::Repartition<double, D> pairs;
    const auto c = rows(2), e = rows(3);
    const auto wide = [&](auto x) { return hn::BitCast(pairs, x); };
    const auto ab = wide(hn::InterleaveLower(d, a, b)), ce = wide(hn::InterleaveLower(d, c, e));
    const auto AB = wide(hn::InterleaveUpper(d, a, b)), CE = wide(hn::InterleaveUpper(d, c, e));
    const auto put = [&](auto x, i64 j) { hn::StoreU(hn::BitCast(d, x), d, to.data + j * to.row); };
    put(hn::InterleaveLower(pairs, ab, ce), 0);
    put(hn::InterleaveUpper(pairs, ab, ce), 1);
    put(hn::InterleaveLower(pairs, AB, CE), 2);
    put(hn::InterleaveUpper(pairs, AB, CE), 3);
  } else {
    hn::StoreU(hn::InterleaveLower(d, a, b), d, to.data);
    hn::StoreU(hn::InterleaveUpper(d, a, b), d, to.data + to.row);
  }
}

}  // namespace transpose_detail

// to[j, i] = from[i, j] for i < rows, j < columns. As many rows at a time as a vector has lanes:
// with AVX-512 whole cache lines are written. Elements have 4 or 8 bytes.
template <class T>
HWY_INLINE void transpose(i64 rows, i64 columns, Rows<const T> from, Rows<T> to) {
  namespace hn = simd::hn;
  constexpr i64 width = 16 / sizeof(T);
  i64 i = 0;
  const auto stripes = [&](auto d) {
    const auto high = static_cast<i64>(hn::Lanes(d));
    for (; i + high <= rows; i += high) {
      i64 j = 0;
      const T* const x = from.data + i * from.row;
      T* const y = to.data + i;
      for (; j + width <= columns; j += width) {
        transpose_detail::patch(d, {x + j, from.row}, {y + j * to.row, to.row});
      }
      for (; j < columns; ++j) {
        for (i64 k = 0; k < high; ++k) y[j * to.row + k] = x[k * from.row + j];
      }
    }
  };
  stripes(simd::Tag<T>{});
  stripes(hn::CappedTag<T, 32 / sizeof(T)>{});
  stripes(hn::FixedTag<T, width>{});
  for (; i < rows; ++i) {
    for (i64 j = 0; j < columns; ++j) {
      to.data[j * to.row + i] = from.data[i * from.row + j];
    }
  }
}

// A packed copy [columns, rows] of the transpose of packed rows [rows, columns].
template <Real T>
Tensor packed_transpose(const T* data, i64 rows, i64 columns) {
  const Tensor turned = Tensor::empty({columns, rows}, dtype_of<T>);
  transpose<T>(rows, columns, {data, columns}, {turned.data<T>(), rows});
  return turned;
}

}  // namespace weft
