// The kernels of reduce.h: s[o, j] = Σ_i x[o, i, j] over row-major elements.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/device.h"

namespace weft {

struct SumSizes {
  std::int64_t outer = 1, n = 1, inner = 1;
};

template <class T>
void sum_axis(const Cpu&, const SumSizes&, const T* x, T* s);
template <class T>
void sum_axis(const Cuda&, const SumSizes&, const T* x, T* s);

// What CUDA devices make of it: sums over pieces of the axis in f64, then the sum of those. The cut
// is by the sizes alone, so that the order of a sum is too.
//
// Columns are summed by blocks: `width` threads side by side for as many columns, and as many rows
// at a time as that leaves threads for.
struct ColumnStrips {
  static constexpr std::int64_t threads = 128, widest = 32;
  std::int64_t count, width, abreast;

  constexpr explicit ColumnStrips(std::int64_t columns)
      : count(std::max<std::int64_t>(1, (columns + widest - 1) / widest)),
        width(std::max<std::int64_t>(1, (columns + count - 1) / count)),
        abreast(threads / width) {}
};

inline constexpr std::int64_t shortest_sum = 16;  // up to here one thread adds one sum

constexpr std::int64_t sum_pieces(const SumSizes& s) {
  if (s.n <= shortest_sum) return 1;
  constexpr std::int64_t most_blocks = 2048;  // what keeps a device full
  const ColumnStrips strips(s.inner);
  const std::int64_t least = s.inner == 1 ? 8192 : 32 * strips.abreast;  // elements of a piece
  const std::int64_t most = std::max<std::int64_t>(1, most_blocks / (s.outer * strips.count));
  return std::min(most, (s.n + least - 1) / least);
}

// partial[o, k, j] = Σ_{i in piece k} x[o, i, j]
template <class From, class To>
void sum_by_pieces(const Cuda&, const SumSizes&, std::int64_t pieces, const From* x, To* partial);

}  // namespace weft
