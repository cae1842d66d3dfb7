// Clustered attention.
// A. Vyas, A. Katharopoulos, F. Fleuret, "Fast transformers with clustered attention", NeurIPS
// 2020, arXiv 2007.04825, section 3.2, eqs. 3–6.
//
// For sequences with many similar queries: they are grouped into C clusters (clusters.h), and all
// members of a cluster get the attention of their mean, to all keys. Time and memory are linear in
// the length. Given up are the differences of the queries of one cluster, and the causal form,
// since the clusters depend on all queries.
//
// Per batch item and head, query i of cluster g_i, cluster c of n_c members, key s (τ: option
// `temperature`, 1/√E unless given):
//
//     q̄_c = (1/n_c) Σ_{g_i = c} q_i               0 where the cluster is empty
//     a_cs = softmax_s(τ q̄_c · k_s)               over the keys that exist
//     v̄_c = Σ_s d_cs a_cs v_s                     d: the dropout mask over [B, H, C, S]
//     o_i = v̄_{g_i}
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]
//
// Masks: lengths (of keys) and query_lengths. A query at or beyond its length belongs to no
// cluster, gives 0 and gets no gradient; an item without keys gives 0. With a cluster for every
// query this is full attention.
//
// Backward. No gradient flows through the labels; that of the centroids is shared among the
// members:
//
//     dv̄_c = Σ_{g_i = c} do_i                     then dk, dv, dq̄ as in full.h, with q̄ for q
//     dq_i = dq̄_{g_i} / n_{g_i}
//
// So an op of attention over centroids is between two maps: gather, a sum from queries to clusters,
// and spread, a copy back. They are each other's transpose; the factor 1/n_c is in gather forward
// and in spread backward. The attention itself is the engine for pairs, with C queries.
//
// Saved: q, k, v and out as handles, the labels (i32 [B, H, N]) and ℓ [B, H, C] of full.h. The
// centroids are recomputed, and v̄_c is the output of any member of c. Time 2 N E bits + T N C
// words for the clusters, 2 C S (E + M) forward and 2.5 times that backward: linear in N and in S.
//
// Read next: clusters.h; clustered.cpp; ops/attention/engines/pairs/pairs.h; then
// ops/attention/i_clustered/i_clustered.h, which corrects the largest weights for each query.
#pragma once

#include "runtime/device.h"
#include "runtime/random.h"
#include "runtime/view.h"

namespace weft {

// The call in kernels. `lengths` and `query_lengths` hold B numbers or are null; labels [B, H, N].
template <class T>
struct ClusteredAttention {
  View<const T, 4> q, k, v;
  View<const std::int32_t, 3> labels;
  const i64* lengths;
  const i64* query_lengths;
  i64 clusters;
  T temperature;
  double dropout;
  RandomKey random;

  constexpr i64 B() const { return q.size(0); }
  constexpr i64 N() const { return q.size(1); }
  constexpr i64 S() const { return k.size(1); }
  constexpr i64 H() const { return q.size(2); }
  constexpr i64 E() const { return q.size(3); }
  constexpr i64 M() const { return v.size(3); }
};

template <class Device, class T>
struct ClusteredKernels {
  // Writes all of out and log_sums [B, H, C].
  static void forward(const Device&, const ClusteredAttention<T>&, View<T, 4> out,
                      View<T, 3> log_sums);

  // Writes all of dq, dk and dv.
  static void backward(const Device&, const ClusteredAttention<T>&, View<const T, 4> out,
                       View<const T, 3> log_sums, View<const T, 4> dout, View<T, 4> dq,
                       View<T, 4> dk, View<T, 4> dv);
};

}  // namespace weft
