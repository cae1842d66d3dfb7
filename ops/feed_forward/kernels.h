// The kernels of feed_forward.h between its products, on CUDA devices.
#pragma once

#include "ops/pointwise/activation.h"
#include "runtime/device.h"
#include "runtime/types.h"

namespace weft {

template <class Device, class T>
struct ActivationKernels {
  // z ← z + bias and f = φ(z), over rows of h.
  static void forward(const Device&, Activation, i64 rows, i64 h, const T* bias, T* z, T* f);
  // f = φ(z) and df ← df φ'(z), over `count` elements.
  static void backward(const Device&, Activation, i64 count, const T* z, T* f, T* df);
};

}  // namespace weft
