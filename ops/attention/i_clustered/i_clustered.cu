// Improved clustered attention on CUDA devices: launches its kernels. Backward processes the
// members first, since the means need the gradient of the mass.
#include "ops/attention/clustered/sorted.cuh"
#include "ops/attention/i_clustered/i_clustered.h"
#include "ops/attention/i_clustered/members.cuh"

namespace weft {
namespace {

template <class T>
MeansAttention<T> over_other_keys(const ImprovedClustered<T>& p, const SortedQueries& sorted,
                                  const std::int32_t* topk, const View<T, 4>& means) {
  return {.means = means,
          .k = p.k,
          .v = p.v,
          .lengths = p.lengths,
          .begins = sorted.begins,
          .topk = topk,
          .count = p.topk,
          .temperature = p.temperature,
          .dropout = p.dropout,
          .random = p.random.further(DrawPurpose::bottom_dropout)};
}

template <class T>
MembersAttention<T> over_members(const ImprovedClustered<T>& p, const SortedQueries& sorted,
                                 const std::int32_t* topk, const T* mass) {
  return {p.q, p.k, p.v, sorted, topk, p.topk, mass, p.temperature, p.causal, p.dropout, p.random};
}

}  // namespace

template <class Device, class T>
void ImprovedClusteredKernels<Device, T>::forward(const Device& device,
                                                  const ImprovedClustered<T>& p, bool decide,
                                                  View<std::int32_t, 4> topk, View<T, 3> mass,
                                                  View<T, 3> log_sums, View<T, 4> out) {
  const Sorting sorting(device, p);
  const SortedQueries& sorted = sorting.queries;
  PerCluster<T> means, bottom;
  if (decide || !p.causal) {
    means = {device, sorted, p.E()};
    GroupKernels<T>::gather(device, sorted, true, p.q, means.view());
  }
  if (decide) {
    SelectionKernels<T>::select(device, over_other_keys<T>(p, sorted, nullptr, means.view()),
                                topk.data);
  }
  View<const T, 4> rest;
  if (!p.causal) {
    bottom = {device, sorted, p.M()};
    MeansKernels<T>::forward(device, over_other_keys<T>(p, sorted, topk.data, means.view()),
                             bottom.view(), log_sums.data, mass.data);
    rest = bottom.view();
  }
  MembersKernels<T>::forward(device, over_members<T>(p, sorted, topk.data, mass.data), rest, out);
}

template <class Device, class T>
void ImprovedClusteredKernels<Device, T>::backward(const Device& device,
                                                   const ImprovedClustered<T>& p,
                                                   View<const std::int32_t, 4> topk,
                                                   View<const T, 3> mass, View<const T, 3> log_sums,
                                                   View<const T, 4> out, View<const T, 4> dout,
                                                   View<T, 4> dq, View<T, 4> dk, View<T, 4> dv) {
  const auto floats = [&](i64 width) {
    return Workspace<T>(device, p.B() * p.H() * width);
  };
  const Sorting sorting(device, p);
  const SortedQueries& sorted = sorting.queries;
  const MembersAttention<T> members = over_members<T>(p, sorted, topk.data, mass.data);
  const Workspace<T> sums = floats(p.N()), dmass = floats(p.N());
  const MemberSums<T> of_members{sums.data(), dmass.data()};
  MembersKernels<T>::backward(device, members, dout, dq, of_members);
  if (!p.causal) {
    const PerCluster<T> means(device, sorted, p.E());
    const PerCluster<T> dmeans(device, sorted, p.E());
    const PerCluster<T> dbottom(device, sorted, p.M());
    const Workspace<T> delta = floats(p.clusters), of_mass = floats(p.clusters);
    GroupKernels<T>::gather(device, sorted, true, p.q, means.view());
    GroupKernels<T>::gather(device, sorted, false, dout, dbottom.view());
    GroupKernels<T>::inner_products(device, sorted, dout, out, delta.data());
    MembersKernels<T>::sum_of_mass(device, members, of_members, p.detach_mass, of_mass.data(),
                                   delta.data());
    MeansKernels<T>::backward(device, over_other_keys<T>(p, sorted, topk.data, means.view()),
                              log_sums.data, delta.data(), of_mass.data(), dbottom.view(),
                              dmeans.view(), dk, dv);
    GroupKernels<T>::spread(device, sorted, true, true, dmeans.view(), dq);
  }
  MembersKeysKernels<T>::backward(device, members, of_members, dout, !p.causal, dk, dv);
}

template struct ImprovedClusteredKernels<Cuda, float>;
template struct ImprovedClusteredKernels<Cuda, double>;

}  // namespace weft
