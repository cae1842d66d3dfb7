// Clustered attention on CUDA devices: launches the kernels of clusters.cu, groups.cu and the
// engine for pairs.
#include "ops/attention/clustered/centroids.h"
#include "ops/attention/clustered/groups.cuh"
#include "ops/attention/clustered/sorted.cuh"

namespace weft {
template <class Device, class T>
void ClusteredKernels<Device, T>::forward(const Device& device, const ClusteredAttention<T>& p,
                                          View<T, 4> out, View<T, 3> log_sums) {
  const Sorting sorting(device, p);
  const SortedQueries& sorted = sorting.queries;
  const PerCluster<T> means(device, sorted, p.E());
  const PerCluster<T> values(device, sorted, p.M());
  GroupKernels<T>::gather(device, sorted, true, p.q, means.view());
  PairsKernels<Device, T>::forward(device, over_centroids<T>(p, means.view()), {}, values.view(),
                                   log_sums);
  GroupKernels<T>::spread(device, sorted, false, false, values.view(), out);
}

template <class Device, class T>
void ClusteredKernels<Device, T>::backward(const Device& device, const ClusteredAttention<T>& p,
                                           View<const T, 4> out, View<const T, 3> log_sums,
                                           View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk,
                                           View<T, 4> dv) {
  const Sorting sorting(device, p);
  const SortedQueries& sorted = sorting.queries;
  const PerCluster<T> means(device, sorted, p.E());
  const PerCluster<T> dmeans(device, sorted, p.E());
  const PerCluster<T> values(device, sorted, p.M());
  const PerCluster<T> dvalues(device, sorted, p.M());
  GroupKernels<T>::gather(device, sorted, true, p.q, means.view());
  GroupKernels<T>::gather(device, sorted, false, dout, dvalues.view());
  GroupKernels<T>::gather(device, sorted, true, out, values.view());  // members share their output
  PairsBackwardKernels<Device, T>::backward(device, over_centroids<T>(p, means.view()),
                                            values.view(), log_sums, dvalues.view(), {},
                                            dmeans.view(), dk, dv, {});
  GroupKernels<T>::spread(device, sorted, true, false, dmeans.view(), dq);
}

template struct ClusteredKernels<Cuda, float>;
template struct ClusteredKernels<Cuda, double>;

}  // namespace weft
