// The kernels of softmax.h, over `rows` contiguous rows of V elements.
#pragma once

#include "runtime/device.h"
#include "runtime/types.h"

namespace weft {

template <class Device, class T>
struct SoftmaxKernels {
  static void forward(const Device&, i64 rows, i64 V, const T* x, T* y);
  static void backward(const Device&, i64 rows, i64 V, const T* y, const T* dy, T* dx);
};

template <class Device, class T>
struct LogSumExpKernels {
  // sums [2, rows]: m, and 1/z or 0 where z is 0.
  static void forward(const Device&, i64 rows, i64 V, const T* x, T* lse, T* sums);
  static void backward(const Device&, i64 rows, i64 V, const T* x, const T* sums, const T* dlse,
                       T* dx);
};

}  // namespace weft
