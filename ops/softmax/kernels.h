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
  static void forward(const Device&, i64 rows, i64 V, const T* x, T* lse);
  static void backward(const Device&, i64 rows, i64 V, const T* x, const T* lse, const T* dlse,
                       T* dx);
};

}  // namespace weft
