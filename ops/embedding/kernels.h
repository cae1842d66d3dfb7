// The kernels of embedding.h.
#pragma once

#include "runtime/device.h"
#include "runtime/dtype.h"

namespace weft {

template <class Device, class T>
struct EmbeddingKernels {
  // y[p, :] = table[ids[p], :]
  static void forward(const Device&, i64 count, i64 V, i64 d, const T* table, const i64* ids, T* y);
  static void backward(const Device&, i64 count, i64 V, i64 d, const T* dy, const i64* ids,
                       T* dtable);
};

}  // namespace weft
