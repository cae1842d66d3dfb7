// The kernels of layer_norm.h.
#pragma once

#include "ops/dropout/mask.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace weft {

// What the dropout of a residual sum applies to: the sum x + branch, or the branch alone.
enum class DropoutOn { sum, branch };

// Contiguous rows of width d, of type S; `branch` may be null.
template <class S>
struct LayerNormRows {
  using T = Accumulator<S>;
  i64 rows, d;
  const S *x, *branch;
  const T *gain, *bias;
  T epsilon;
  DropoutOn dropout_on;
  DropoutMask mask;
};

template <class Device, class S>
struct LayerNormKernels {
  using T = Accumulator<S>;
  static void forward(const Device&, const LayerNormRows<S>&, T* normalised, T* inverse_deviation,
                      S* y);
  // dx and dbranch may be the same memory (dropout on the sum), dbranch null. `sums` accumulates dg
  // and db [2, d].
  static void backward(const Device&, const LayerNormRows<S>&, const T* normalised,
                       const T* inverse_deviation, const S* dy, S* dx, S* dbranch, T* sums);
};

}  // namespace weft
