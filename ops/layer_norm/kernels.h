// The kernels of layer_norm.h.
#pragma once

#include "ops/dropout/mask.h"
#include "runtime/device.h"

namespace weft {

// What the dropout of a residual sum applies to: the sum x + branch, or the branch alone.
enum class DropoutOn { sum, branch };

// Contiguous rows of width d; `branch` may be null.
template <class T>
struct LayerNormRows {
  i64 rows, d;
  const T *x, *branch, *gain, *bias;
  T epsilon;
  DropoutOn dropout_on;
  DropoutMask mask;
};

template <class Device, class T>
struct LayerNormKernels {
  static void forward(const Device&, const LayerNormRows<T>&, T* normalised, T* inverse_deviation,
                      T* y);
  // dx and dbranch may be the same memory (dropout on the sum), dbranch null. `sums` accumulates dg
  // and db [2, d].
  static void backward(const Device&, const LayerNormRows<T>&, const T* normalised,
                       const T* inverse_deviation, const T* dy, T* dx, T* dbranch, T* sums);
};

}  // namespace weft
