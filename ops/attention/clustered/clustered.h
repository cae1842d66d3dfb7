// Clustered attention.
// A. Vyas, A. Katharopoulos, F. Fleuret, "Fast transformers with clustered attention", NeurIPS
// 2020, arXiv 2007.04825, section 3.2, eqs. 3–6.
//
// Queries fall into C clusters (clusters.h says how); all members of a cluster get the attention of
// their mean. Per batch item and head, query i of cluster g_i, cluster c of n_c members, key s (τ:
// option `temperature`, 1/√E unless given):
//
//     q̄_c = (1/n_c) Σ_{g_i = c} q_i               0 where the cluster is empty
//     a_cs = softmax_s(τ q̄_c · k_s)               over the keys that exist
//     v̄_c = Σ_s d_cs a_cs v_s                     d: the dropout mask over [B, H, C, S]
//     o_i = v̄_{g_i}
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]
//
// Masks: lengths (of keys) and query_lengths. A query at or past its length belongs to no cluster,
// gives 0 and takes no gradient; an item without keys gives 0. With a cluster for every query this
// is full attention.
//
// Backward. No gradient flows through the labels; that of the centroids is shared among the members:
//
//     dv̄_c = Σ_{g_i = c} do_i                     then dk, dv, dq̄ as in full.h, with q̄ for q
//     dq_i = dq̄_{g_i} / n_{g_i}
//
// So an op of attention over centroids stands between two maps that are each other's transpose:
// gather, from queries to clusters, and spread, back. The attention itself streams over the keys by
// the kernels of full attention, with C queries.
//
// Saved: q, k, v and out as handles, the labels (i32 [B, H, N]) and ℓ [B, H, C] of full.h. The
// centroids are averaged again, and v̄_c is the output of any member of c. Time 2 N E bits + T N C
// words for the clusters, 4 C S (E + M) forward and 2.5 times that backward: linear in N and in S.
#pragma once

#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

// The labels [B, H, N] of the queries; `lengths` of them, B numbers or null, exist.
struct ClusterLabels {
  View<const std::int32_t, 3> labels;
  const std::int64_t* lengths;
  std::int64_t clusters;
};

// y_c = Σ_{g_i = c} x_i, divided by n_c where `mean`; x [B, N, H, width], y [B, C, H, width] with
// neighbours along its last axis.
template <class T>
void gather_clusters(const Cpu&, const ClusterLabels&, bool mean, View<const T, 4> x, View<T, 4> y);

// x_i = y_{g_i}, divided by n_{g_i} where `share`; 0 where query i does not exist.
template <class T>
void spread_clusters(const Cpu&, const ClusterLabels&, bool share, View<const T, 4> y,
                     View<T, 4> x);

// y_c = x_i of the first member i of c; 0 where there is none.
template <class T>
void pick_clusters(const Cpu&, const ClusterLabels&, View<const T, 4> x, View<T, 4> y);

}  // namespace weft
