// Sums over rows, split over threads: the gradients of weights.
//
// The rows are split into at most eight parts, by their number alone. Each part accumulates into a
// buffer of its own, a block of rows at a time; the buffers are added in the order of the parts. So
// the bits do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/pack.h"
#include "runtime/parallel.h"
#include "runtime/tensor.h"

namespace weft {

inline constexpr i64 most_row_parts = 8;

// The number of parts, with blocks of at most `block` rows; each part is one call of a parallel
// loop.
inline i64 row_parts(i64 rows, i64 block) {
  const i64 blocks = std::max<i64>((rows + block - 1) / block, 1);
  const i64 share = (blocks + most_row_parts - 1) / most_row_parts;  // blocks of one part
  return (blocks + share - 1) / share;
}

// Calls f(begin, end, sums) for blocks of at most `block` rows of 0 … rows−1; `sums` points to
// `count` elements, initially zero, to which f adds. The total over all rows is written to `total`.
template <class T, class F>
void row_sums(i64 rows, i64 block, i64 count, T* total, const F& f) {
  const i64 blocks = std::max<i64>((rows + block - 1) / block, 1);
  const i64 share = (blocks + most_row_parts - 1) / most_row_parts;  // blocks of one part
  const i64 parts = row_parts(rows, block);
  const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
  std::memset(total, 0, bytes);
  Tensor others;
  if (parts > 1) others = Tensor::zeros({parts - 1, count}, dtype_of<T>);
  parallel_for(parts, [&](i64 part) {
    T* const sums = part == 0 ? total : others.data<T>() + (part - 1) * count;
    for (i64 i = part * share; i < std::min(blocks, (part + 1) * share); ++i) {
      f(i * block, std::min(rows, (i + 1) * block), sums);
    }
  });
  if (parts == 1) return;
  parallel_ranges(count, 1 << 14, [&](i64 begin, i64 end) {
    for (i64 part = 1; part < parts; ++part) {
      const T* const sums = others.data<T>() + (part - 1) * count;
      for (i64 i = begin; i < end; ++i) total[i] += sums[i];
    }
  });
}

// sums [columns] += each of the packed rows of x.
template <class S, class T = Accumulator<S>>
void add_rows(i64 rows, i64 columns, const S* x, T* sums) {
  for (i64 i = 0; i < rows; ++i, x += columns) {
    map(
        columns, sums, [](auto sum, auto value) { return sum + value; }, sums, x);
  }
}

}  // namespace weft
