// The kernels of reduce.h: s[o, j] = Σ_i x[o, i, j] over row-major elements.
#pragma once

#include <algorithm>

#include "runtime/device.h"
#include "runtime/dtype.h"

namespace weft {

struct SumSizes {
  i64 outer = 1, n = 1, inner = 1;
};

template <class Device, class S>
struct SumKernels {
  static void sum(const Device&, const SumSizes&, const S* x, S* s);
};

// On CUDA devices: partial sums over pieces of the axis in f64, then the sum of those. The split
// depends on the sizes alone, so that the order of a sum does too.
//
// Columns are summed by blocks: `width` contiguous threads for as many columns, and as many rows at
// a time as the remaining threads allow.
struct ColumnStrips {
  static constexpr i64 threads = 128, widest = 32;
  i64 count, width, abreast;

  constexpr explicit ColumnStrips(i64 columns)
      : count(std::max<i64>(1, (columns + widest - 1) / widest)),
        width(std::max<i64>(1, (columns + count - 1) / count)),
        abreast(threads / width) {}
};

inline constexpr i64 shortest_sum = 16;  // up to here one thread computes a sum

constexpr i64 sum_pieces(const SumSizes& s) {
  if (s.n <= shortest_sum) return 1;
  constexpr i64 most_blocks = 2048;  // enough to fill a device
  const ColumnStrips strips(s.inner);
  const i64 least = s.inner == 1 ? 8192 : 32 * strips.abreast;  // elements of a piece
  const i64 most = std::max<i64>(1, most_blocks / (s.outer * strips.count));
  return std::min(most, (s.n + least - 1) / least);
}

template <class Device, class From, class To>
struct PieceSumKernels {
  // partial[o, k, j] = Σ_{i in piece k} x[o, i, j]
  static void sum(const Device&, const SumSizes&, i64 pieces, const From* x, To* partial);
};

}  // namespace weft
