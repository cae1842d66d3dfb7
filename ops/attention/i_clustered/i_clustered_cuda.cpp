// Improved clustered attention on CUDA devices: what the host allocates and starts for it. Backward
// goes through the members first, since the means need the gradient of the mass.
#include "ops/attention/clustered/sorted.h"
#include "ops/attention/i_clustered/held.h"
#include "ops/attention/i_clustered/i_clustered.h"
#include "ops/attention/i_clustered/members.h"
#include "ops/attention/scores.h"

namespace weft {
namespace {

template <class T>
MeansAttention<T> over_means(const ImprovedClustered<T>& p, const SortedQueries& sorted,
                             const std::int32_t* topk, const Tensor& means) {
  RandomKey random = p.random;
  random = random.further(DrawPurpose::bottom_dropout);
  return {.means = means.view<const T, 4>(),
          .k = p.k,
          .v = p.v,
          .lengths = p.lengths,
          .begins = sorted.begins,
          .topk = topk,
          .count = p.topk,
          .temperature = p.temperature,
          .dropout = p.dropout,
          .random = random};
}

template <class T>
MembersAttention<T> over_members(const ImprovedClustered<T>& p, const SortedQueries& sorted,
                                 const std::int32_t* topk, const T* mass) {
  return {p.q, p.k, p.v, sorted, topk, p.topk, mass, p.temperature, p.causal, p.dropout, p.random};
}

}  // namespace

Tensor held_topk(const Cuda& device, const AttentionSpec& spec, const AttentionCall& call,
                 const Shape& shape, std::int64_t S) {
  const Tensor given = given_choice(spec.mechanism(), call, "topk", shape);
  if (!given.defined()) return given;
  const Tensor topk = Tensor::empty(shape, DType::i32, given.device());
  take_topk(device,
            {given.data<std::int64_t>(), numbers_of(call.lengths), shape[0], shape[1], shape[2],
             shape[3], S},
            topk.data<std::int32_t>());
  return topk;
}

template <class T>
void i_clustered_forward(const Cuda& device, const ImprovedClustered<T>& p, bool decide,
                         View<std::int32_t, 4> topk, View<T, 3> mass, View<T, 3> log_sums,
                         View<T, 4> out) {
  const Sorting sorting(device, p);
  const SortedQueries& sorted = sorting.queries;
  Tensor means, bottom;
  if (decide || !p.causal) {
    means = per_cluster<T>(device, p.B(), p.clusters, p.H(), p.E());
    gather_clusters<T>(device, sorted, true, p.q, means.view<T, 4>());
  }
  if (decide) select_topk<T>(device, over_means<T>(p, sorted, nullptr, means), topk.data);
  View<const T, 4> rest;
  if (!p.causal) {
    bottom = per_cluster<T>(device, p.B(), p.clusters, p.H(), p.M());
    means_forward<T>(device, over_means<T>(p, sorted, topk.data, means), bottom.view<T, 4>(),
                     log_sums.data, mass.data);
    rest = bottom.view<const T, 4>();
  }
  members_forward<T>(device, over_members<T>(p, sorted, topk.data, mass.data), rest, out);
}

template <class T>
void i_clustered_backward(const Cuda& device, const ImprovedClustered<T>& p,
                          View<const std::int32_t, 4> topk, View<const T, 3> mass,
                          View<const T, 3> log_sums, View<const T, 4> out, View<const T, 4> dout,
                          View<T, 4> dq, View<T, 4> dk, View<T, 4> dv) {
  const auto floats = [&](std::int64_t width) {
    return Tensor::empty({p.B(), p.H(), width}, dtype_of<T>, device);
  };
  const Sorting sorting(device, p);
  const SortedQueries& sorted = sorting.queries;
  const MembersAttention<T> members = over_members<T>(p, sorted, topk.data, mass.data);
  const Tensor sums = floats(p.N()), dmass = floats(p.N());
  const MemberSums<T> of_members{sums.data<T>(), dmass.data<T>()};
  members_backward<T>(device, members, dout, dq, of_members);
  if (!p.causal) {
    const Tensor means = per_cluster<T>(device, p.B(), p.clusters, p.H(), p.E());
    const Tensor dmeans = per_cluster<T>(device, p.B(), p.clusters, p.H(), p.E());
    const Tensor dbottom = per_cluster<T>(device, p.B(), p.clusters, p.H(), p.M());
    const Tensor delta = floats(p.clusters), of_mass = floats(p.clusters);
    gather_clusters<T>(device, sorted, true, p.q, means.view<T, 4>());
    gather_clusters<T>(device, sorted, false, dout, dbottom.view<T, 4>());
    inner_products<T>(device, sorted, dout, out, delta.data<T>());
    sum_of_mass<T>(device, members, of_members, p.detach_mass, of_mass.data<T>(), delta.data<T>());
    means_backward<T>(device, over_means<T>(p, sorted, topk.data, means), log_sums.data,
                      delta.data<T>(), of_mass.data<T>(), dbottom.view<const T, 4>(),
                      dmeans.view<T, 4>(), dk, dv);
    spread_clusters<T>(device, sorted, true, true, dmeans.view<const T, 4>(), dq);
  }
  members_keys_backward<T>(device, members, of_members, dout, !p.causal, dk, dv);
}

#define WEFT_I_CLUSTERED(T)                                                                     \
  template void i_clustered_forward(const Cuda&, const ImprovedClustered<T>&, bool,             \
                                    View<std::int32_t, 4>, View<T, 3>, View<T, 3>, View<T, 4>); \
  template void i_clustered_backward(                                                           \
      const Cuda&, const ImprovedClustered<T>&, View<const std::int32_t, 4>, View<const T, 3>,  \
      View<const T, 3>, View<const T, 4>, View<const T, 4>, View<T, 4>, View<T, 4>, View<T, 4>);
WEFT_I_CLUSTERED(float)
WEFT_I_CLUSTERED(double)

}  // namespace weft
