// The kernels of cross_entropy.h, over `rows` contiguous rows of V logits.
#pragma once

#include "runtime/device.h"
#include "runtime/types.h"

namespace weft {

template <class Device, class T>
struct CrossEntropyKernels {
  // lse (unless null) and nats of every row.
  static void forward(const Device&, i64 rows, i64 V, const T* logits, const i64* targets, T* lse,
                      double* nats);
  // loss = Σ nats / rows
  static void mean(const Device&, i64 rows, const double* nats, T* loss);
  static void backward(const Device&, i64 rows, i64 V, const T* logits, const i64* targets,
                       const T* lse, const T* dloss, T* dlogits);
};

}  // namespace weft
