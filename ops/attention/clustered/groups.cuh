// Between queries and clusters on CUDA devices, for all mechanisms over clusters.
#pragma once

#include "runtime/cuda/device.h"
#include "runtime/view.h"

namespace weft {

// The queries sorted by cluster (sorted.cuh), with the labels [B, H, N] that they were sorted by.
struct SortedQueries {
  const std::int32_t* labels;
  const std::int32_t* begins;
  const std::int32_t* order;
  const i64* lengths;  // of queries; null: all
  i64 B, N, H, clusters;
};

template <class T>
struct GroupKernels {
  // y_c = Σ_{g_i = c} x_i, divided by n_c if `mean`; x [B, N, H, width], y [B, C, H, width].
  static void gather(const Cuda&, const SortedQueries&, bool mean, View<const T, 4> x,
                     View<T, 4> y);

  // x_i = y_{g_i}, divided by n_{g_i} if `share`, added to x if `add`; 0 for queries beyond the
  // length.
  static void spread(const Cuda&, const SortedQueries&, bool share, bool add, View<const T, 4> y,
                     View<T, 4> x);

  // [B, H, C]: Σ_{g_i = c} x_i · y_i.
  static void inner_products(const Cuda&, const SortedQueries&, View<const T, 4> x,
                             View<const T, 4> y, T* inner);
};

}  // namespace weft
