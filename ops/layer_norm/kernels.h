// The kernels of layer_norm.h.
#pragma once

#include "ops/dropout/mask.h"
#include "runtime/device.h"

namespace weft {

// What the dropout of a residual sum falls on: the sum x + branch, or the branch alone.
enum class DropoutOn { sum, branch };

// Rows of width d side by side; `branch` may be null.
template <class T>
struct LayerNormRows {
  std::int64_t rows, d;
  const T *x, *branch, *gain, *bias;
  T epsilon;
  DropoutOn dropout_on;
  DropoutMask mask;
};

template <class T>
void layer_norm_forward(const Cpu&, const LayerNormRows<T>&, T* normalised, T* inverse_deviation,
                        T* y);
template <class T>
void layer_norm_forward(const Cuda&, const LayerNormRows<T>&, T* normalised, T* inverse_deviation,
                        T* y);

// dx and dbranch may be the same memory (dropout on the sum), dbranch null. `sums` gathers dg and
// db [2, d].
template <class T>
void layer_norm_backward(const Cpu&, const LayerNormRows<T>&, const T* normalised,
                         const T* inverse_deviation, const T* dy, T* dx, T* dbranch, T* sums);
template <class T>
void layer_norm_backward(const Cuda&, const LayerNormRows<T>&, const T* normalised,
                         const T* inverse_deviation, const T* dy, T* dx, T* dbranch, T* sums);

// The two halves of backward on CUDA devices: the rows, and the sums over pieces of them
// [2, pieces, d].
template <class T>
void layer_norm_row_gradients(const Cuda&, const LayerNormRows<T>&, const T* normalised,
                              const T* inverse_deviation, const T* dy, T* dx, T* dbranch);
template <class T, class To>
void layer_norm_column_sums(const Cuda&, const LayerNormRows<T>&, std::int64_t pieces,
                            const T* normalised, const T* dy, To* partial);

}  // namespace weft
