// What causal_conv1d wants of a CUDA device besides products.
#pragma once

#include "runtime/device.h"
#include "runtime/types.h"

namespace weft {

// `rows` rows from row `first` on of the windows of x [B, N, n], at all W taps: row b N + t of
// windows holds x[b, t − (W−1−k), c], or x[b, t + (W−1−k), c] where they look ahead, at k n + c; 0
// outside the sequence.
enum class Look { back, ahead };

struct Conv1dWindows {
  i64 N, n, W;
  Look look;
  i64 first, rows;
};

template <class Device, class T>
struct Conv1dKernels {
  static void windows(const Device&, const Conv1dWindows&, const T* x, T* windows);
  // y = y + bias, and max(y, 0) of that with `relu`: rows of m.
  static void add_bias(const Device&, i64 count, i64 m, const T* bias, bool relu, T* y);
};

}  // namespace weft
