// The kernels of cross_entropy.h, over `rows` contiguous rows of V logits.
#pragma once

#include "runtime/device.h"
#include "runtime/types.h"

namespace weft {

template <class Device, class T>
struct CrossEntropyKernels {
  // The nats of every row, and its sums [2, rows] (unless null): m, and 1/z.
  static void forward(const Device&, i64 rows, i64 V, const T* logits, const i64* targets, T* sums,
                      double* nats);
  // loss = Σ nats / rows
  static void mean(const Device&, i64 rows, const double* nats, T* loss);
  static void backward(const Device&, i64 rows, i64 V, const T* logits, const i64* targets,
                       const T* sums, const T* dloss, T* dlogits);
};

}  // namespace weft
