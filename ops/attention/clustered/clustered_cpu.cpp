// Clustered attention on the CPU: maps between queries and clusters around the engine
// for pairs; equations: clustered.h.
#include <algorithm>

#include "ops/attention/clustered/centroids.h"
#include "ops/attention/clustered/clusters.h"
#include "ops/attention/rows.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

// Calls f(b, h, labels of the valid queries, their number) for all batch items and heads.
template <class T, class F>
void each_head(const ClusteredAttention<T>& p, const F& f) {
  const i64 H = p.H(), N = p.N();
  parallel_for(p.B() * H, [&](i64 piece) {
    const i64 b = piece / H, h = piece % H;
    f(b, h, &p.labels(b, h, 0), length_of(p.query_lengths, b, N));
  });
}

// y_c = Σ_{g_i = c} x_i, divided by n_c if `mean`.
template <class T>
void gather_clusters(const ClusteredAttention<T>& p, bool mean, View<const T, 4> x,
                     View<T, 4> y) {
  each_head(p, [&](i64 b, i64 h, const std::int32_t* labels, i64 count) {
    const Members members(labels, count, p.clusters);
    for (i64 c = 0; c < p.clusters; ++c) {
      const i64 size = members.size(c);
      sum_of_rows(x, b, h, members.of(c), size, mean && size > 0 ? 1.0 / double(size) : 1.0,
                  &y(b, c, h, 0));
    }
  });
}

// x_i = y_{g_i}, divided by n_{g_i} if `share`; 0 for queries beyond the length.
template <class T>
void spread_clusters(const ClusteredAttention<T>& p, bool share, View<const T, 4> y,
                     View<T, 4> x) {
  each_head(p, [&](i64 b, i64 h, const std::int32_t* labels, i64 count) {
    const Members members(labels, count, p.clusters);
    clear_rows(x, b, h, count);
    for (i64 i = 0; i < count; ++i) {
      if (i + 4 < count) prefetch(&x(b, i + 4, h, 0), x.size(3));
      const T factor = share ? T(1) / T(members.size(labels[i])) : T(1);
      copy_rows<T>(1, x.size(3), factor, &y(b, labels[i], h, 0), 0, y.stride(3), &x(b, i, h, 0), 0,
                   x.stride(3));
    }
  });
}

// y_c = x_i of the first member i of c; 0 if there is none.
template <class T>
void pick_clusters(const ClusteredAttention<T>& p, View<const T, 4> x, View<T, 4> y) {
  each_head(p, [&](i64 b, i64 h, const std::int32_t* labels, i64 count) {
    const Members members(labels, count, p.clusters);
    for (i64 c = 0; c < p.clusters; ++c) {
      sum_of_rows(x, b, h, members.of(c), std::min<i64>(members.size(c), 1), 1.0, &y(b, c, h, 0));
    }
  });
}

// A tensor [B, C, H, width] with the memory layout [B, H, C, width].
template <class T>
Tensor per_cluster(const ClusteredAttention<T>& p, i64 width) {
  return Tensor::empty({p.B(), p.H(), p.clusters, width}, dtype_of<T>).transpose(1, 2);
}

}  // namespace

template <class Device, class T>
void ClusteredKernels<Device, T>::forward(const Device& device, const ClusteredAttention<T>& p,
                                          View<T, 4> out, View<T, 3> log_sums) {
  const Tensor centroids = per_cluster(p, p.E()), values = per_cluster(p, p.M());
  gather_clusters<T>(p, true, p.q, centroids.view<T, 4>());
  PairsKernels<Device, T>::forward(device, over_centroids(p, centroids.view<const T, 4>()), {},
                                   values.view<T, 4>(), log_sums);
  spread_clusters<T>(p, false, values.view<const T, 4>(), out);
}

template <class Device, class T>
void ClusteredKernels<Device, T>::backward(const Device& device, const ClusteredAttention<T>& p,
                                           View<const T, 4> out, View<const T, 3> log_sums,
                                           View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk,
                                           View<T, 4> dv) {
  const Tensor centroids = per_cluster(p, p.E()), dcentroids = per_cluster(p, p.E());
  const Tensor values = per_cluster(p, p.M()), dvalues = per_cluster(p, p.M());
  gather_clusters<T>(p, true, p.q, centroids.view<T, 4>());
  gather_clusters<T>(p, false, dout, dvalues.view<T, 4>());
  pick_clusters<T>(p, out, values.view<T, 4>());
  PairsBackwardKernels<Device, T>::backward(
      device, over_centroids(p, centroids.view<const T, 4>()), values.view<const T, 4>(), log_sums,
      dvalues.view<const T, 4>(), {}, dcentroids.view<T, 4>(), dk, dv, {});
  spread_clusters<T>(p, true, dcentroids.view<const T, 4>(), dq);
}

template struct ClusteredKernels<Cpu, float>;
template struct ClusteredKernels<Cpu, double>;

}  // namespace weft
