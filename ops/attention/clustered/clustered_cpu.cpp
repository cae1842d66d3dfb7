// CPU kernels of clustered attention besides those of full attention; equations: clustered.h.
#include <algorithm>

#include "ops/attention/clustered/clustered.h"
#include "ops/attention/clustered/clusters.h"
#include "ops/attention/rows.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

// Calls f(b, h, labels of the existing queries, their number) for all batch items and heads.
template <class F>
void each_head(const ClusterLabels& p, const F& f) {
  const std::int64_t H = p.labels.size(1), N = p.labels.size(2);
  if (N == 0) return;
  parallel_for(p.labels.size(0) * H, [&](std::int64_t piece) {
    const std::int64_t b = piece / H, h = piece % H;
    f(b, h, &p.labels(b, h, 0), length_of(p.lengths, b, N));
  });
}

}  // namespace

template <class T>
void gather_clusters(const Cpu&, const ClusterLabels& p, bool mean, View<const T, 4> x,
                     View<T, 4> y) {
  each_head(p, [&](std::int64_t b, std::int64_t h, const std::int32_t* labels, std::int64_t count) {
    const Members members(labels, count, p.clusters);
    for (std::int64_t c = 0; c < p.clusters; ++c) {
      const std::int64_t size = members.size(c);
      sum_of_rows(x, b, h, members.of(c), size, mean && size > 0 ? 1.0 / double(size) : 1.0,
                  &y(b, c, h, 0));
    }
  });
}

template <class T>
void spread_clusters(const Cpu&, const ClusterLabels& p, bool share, View<const T, 4> y,
                     View<T, 4> x) {
  each_head(p, [&](std::int64_t b, std::int64_t h, const std::int32_t* labels, std::int64_t count) {
    const Members members(labels, count, p.clusters);
    clear_rows(x, b, h, count);
    for (std::int64_t i = 0; i < count; ++i) {
      if (i + 4 < count) prefetch(&x(b, i + 4, h, 0), x.size(3));
      const T factor = share ? T(1) / T(members.size(labels[i])) : T(1);
      copy_rows<T>(1, x.size(3), factor, &y(b, labels[i], h, 0), 0, y.stride(3), &x(b, i, h, 0), 0,
                   x.stride(3));
    }
  });
}

template <class T>
void pick_clusters(const Cpu&, const ClusterLabels& p, View<const T, 4> x, View<T, 4> y) {
  each_head(p, [&](std::int64_t b, std::int64_t h, const std::int32_t* labels, std::int64_t count) {
    const Members members(labels, count, p.clusters);
    for (std::int64_t c = 0; c < p.clusters; ++c) {
      sum_of_rows(x, b, h, members.of(c), std::min<std::int64_t>(members.size(c), 1), 1.0,
                  &y(b, c, h, 0));
    }
  });
}

#define WEFT_CLUSTERED(T)                                                                        \
  template void gather_clusters(const Cpu&, const ClusterLabels&, bool, View<const T, 4>,         \
                                View<T, 4>);                                                     \
  template void spread_clusters(const Cpu&, const ClusterLabels&, bool, View<const T, 4>,         \
                                View<T, 4>);                                                     \
  template void pick_clusters(const Cpu&, const ClusterLabels&, View<const T, 4>, View<T, 4>);
WEFT_CLUSTERED(float)
WEFT_CLUSTERED(double)

}  // namespace weft
