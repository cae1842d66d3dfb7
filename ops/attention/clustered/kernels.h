// The kernels of clusters.h.
#pragma once

#include <cstdint>

#include "ops/attention/length.h"
#include "runtime/device.h"
#include "runtime/random.h"
#include "runtime/view.h"

namespace weft {

// The call in kernels. `planes` is packed; `positions` [B, clusters] are below the item's length.
template <class T>
struct QueryClusters {
  View<const T, 4> q;
  View<const T, 2> planes;
  const i64* positions;
  const i64* lengths;
  i64 clusters, iterations;

  constexpr i64 B() const { return q.size(0); }
  constexpr i64 N() const { return q.size(1); }
  constexpr i64 H() const { return q.size(2); }
  constexpr i64 E() const { return q.size(3); }
  constexpr i64 bits() const { return planes.size(0); }
};

template <class Device, class T>
struct ClusterKernels {
  // Writes hashes [B, H, N] unless it has no data, and labels [B, H, N] unless those have none. On
  // a CUDA device hashes must have data, and both are packed.
  static void cluster(const Device&, const QueryClusters<T>&, View<std::int32_t, 3> labels,
                      View<i64, 3> hashes);
};

// --- for CUDA devices, where the host neither reads lengths nor waits

// positions [B + 1, C]: those of each batch item, and in the last row those of the longest. Drawn
// from the key, or `given` [C] modulo the length unless that is null.
struct PositionDraw {
  RandomKey random;
  const i64* given;
  const i64* lengths;
  i64 B, N, clusters;
};

template <class Device>
struct ClusterChoiceKernels {
  static void draw_positions(const Device&, const PositionDraw&, i64* positions);
};

}  // namespace weft
