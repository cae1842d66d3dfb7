// Clustered attention on CUDA devices: what the host allocates and starts for it.
#include "ops/attention/clustered/clustered.h"
#include "ops/attention/clustered/means.h"
#include "ops/attention/clustered/sorted.h"

namespace weft {
namespace {

template <class T>
MeansAttention<T> over_means(const ClusteredAttention<T>& p, const SortedQueries& sorted,
                             const Tensor& means) {
  return {.means = means.view<const T, 4>(),
          .k = p.k,
          .v = p.v,
          .lengths = p.lengths,
          .begins = sorted.begins,
          .topk = nullptr,
          .count = 0,
          .temperature = p.temperature,
          .dropout = p.dropout,
          .random = p.random};
}

}  // namespace

template <class T>
void clustered_forward(const Cuda& device, const ClusteredAttention<T>& p, View<T, 4> out,
                       View<T, 3> log_sums) {
  const Sorting sorting(device, p);
  const SortedQueries& sorted = sorting.queries;
  const Tensor means = per_cluster<T>(device, p.B(), p.clusters, p.H(), p.E());
  const Tensor values = per_cluster<T>(device, p.B(), p.clusters, p.H(), p.M());
  gather_clusters<T>(device, sorted, true, p.q, means.view<T, 4>());
  means_forward<T>(device, over_means(p, sorted, means), values.view<T, 4>(), log_sums.data,
                   nullptr);
  spread_clusters<T>(device, sorted, false, false, values.view<const T, 4>(), out);
}

template <class T>
void clustered_backward(const Cuda& device, const ClusteredAttention<T>& p, View<const T, 4> out,
                        View<const T, 3> log_sums, View<const T, 4> dout, View<T, 4> dq,
                        View<T, 4> dk, View<T, 4> dv) {
  const Sorting sorting(device, p);
  const SortedQueries& sorted = sorting.queries;
  const Tensor means = per_cluster<T>(device, p.B(), p.clusters, p.H(), p.E());
  const Tensor dmeans = per_cluster<T>(device, p.B(), p.clusters, p.H(), p.E());
  const Tensor dvalues = per_cluster<T>(device, p.B(), p.clusters, p.H(), p.M());
  const Tensor delta = per_cluster<T>(device, p.B(), p.clusters, p.H(), 1);
  gather_clusters<T>(device, sorted, true, p.q, means.view<T, 4>());
  gather_clusters<T>(device, sorted, false, dout, dvalues.view<T, 4>());
  inner_products<T>(device, sorted, dout, out, delta.data<T>());
  means_backward<T>(device, over_means(p, sorted, means), log_sums.data, delta.data<T>(), nullptr,
                    dvalues.view<const T, 4>(), dmeans.view<T, 4>(), dk, dv);
  spread_clusters<T>(device, sorted, true, false, dmeans.view<const T, 4>(), dq);
}

#define WEFT_CLUSTERED(T)                                                                       \
  template void clustered_forward(const Cuda&, const ClusteredAttention<T>&, View<T, 4>,        \
                                  View<T, 3>);                                                  \
  template void clustered_backward(const Cuda&, const ClusteredAttention<T>&, View<const T, 4>, \
                                   View<const T, 3>, View<const T, 4>, View<T, 4>, View<T, 4>,  \
                                   View<T, 4>);
WEFT_CLUSTERED(float)
WEFT_CLUSTERED(double)

}  // namespace weft
