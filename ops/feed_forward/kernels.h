// The kernels of feed_forward.h between its products, on CUDA devices.
#pragma once

#include "ops/pointwise/activation.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace weft {

template <class Device, class S>
struct ActivationKernels {
  using T = Accumulator<S>;
  // z = product + bias and f = φ(z), over rows of h; z may be the product.
  static void forward(const Device&, Activation, i64 rows, i64 h, const T* product, const T* bias,
                      S* z, S* f);
  // f = φ(z), df ← df φ'(z), and that as dz, which may be df, over `count` elements.
  static void backward(const Device&, Activation, i64 count, const S* z, T* df, S* f, S* dz);
};

}  // namespace weft
