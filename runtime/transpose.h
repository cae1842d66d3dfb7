// Transposes of matrices that are in cache.
#pragma once

#include <cstdint>

#include "runtime/simd.h"
#include "runtime/tensor.h"
#include "runtime/tile.h"

namespace weft {

// to[j, i] = from[i, j] for i < rows, j < columns. In f32 four rows of four numbers at a time, by
// four exchanges of neighbours and four of halves.
template <class T>
HWY_INLINE void transpose(std::int64_t rows, std::int64_t columns, Rows<const T> from, Rows<T> to) {
  const auto each = [&](std::int64_t i, std::int64_t j) {
    to.data[j * to.row + i] = from.data[i * from.row + j];
  };
  std::int64_t i = 0;
  if constexpr (sizeof(T) == 4) {
    namespace hn = simd::hn;
    const hn::FixedTag<T, 4> d;
    for (; i + 4 <= rows; i += 4) {
      std::int64_t j = 0;
      for (; j + 4 <= columns; j += 4) {
        const T* const x = from.data + i * from.row + j;
        const auto a = hn::LoadU(d, x), b = hn::LoadU(d, x + from.row);
        const auto c = hn::LoadU(d, x + 2 * from.row), e = hn::LoadU(d, x + 3 * from.row);
        const auto ab = hn::InterleaveLower(d, a, b), ce = hn::InterleaveLower(d, c, e);
        const auto AB = hn::InterleaveUpper(d, a, b), CE = hn::InterleaveUpper(d, c, e);
        T* const y = to.data + j * to.row + i;
        hn::StoreU(hn::ConcatLowerLower(d, ce, ab), d, y);
        hn::StoreU(hn::ConcatUpperUpper(d, ce, ab), d, y + to.row);
        hn::StoreU(hn::ConcatLowerLower(d, CE, AB), d, y + 2 * to.row);
        hn::StoreU(hn::ConcatUpperUpper(d, CE, AB), d, y + 3 * to.row);
      }
      for (; j < columns; ++j) each(i, j), each(i + 1, j), each(i + 2, j), each(i + 3, j);
    }
  }
  for (; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) each(i, j);
  }
}

// A packed copy [columns, rows] of the transpose of packed rows [rows, columns].
template <class T>
Tensor packed_transpose(const T* data, std::int64_t rows, std::int64_t columns) {
  const Tensor turned = Tensor::empty({columns, rows}, dtype_of<T>);
  transpose<T>(rows, columns, {data, columns}, {turned.data<T>(), rows});
  return turned;
}

}  // namespace weft
