// Improved clustered attention, and its causal form.
// A. Vyas, A. Katharopoulos, F. Fleuret, "Fast transformers with clustered attention", NeurIPS
// 2020, arXiv 2007.04825, section 3.3, eqs. 9–11. The causal form is not in the paper but in its
// code.
//
// For sequences with many similar queries, where clustered attention is too coarse: on the k keys
// that a cluster's mean scores highest, every member redistributes the cluster's mass by its own
// scores. Time and memory stay linear in the length. Given up are a query's own scores for all
// other keys; and the causal form leaks (below).
//
// The clusters are those of clustered.h, with q̄, a and ℓ_c = log Σ_s exp(τ q̄_c · k_s); the number k
// of keys is the option `topk`. Per batch item and head, query i of cluster c = g_i, key s:
//
//     T_c = the k keys of largest τ q̄_c · k_s      ties go to the lowest; all if there are fewer;
//                                                  NaN counts as largest, and reaches the output
//     m_c = Σ_{s∈T_c} a_cs
//     p_is = softmax_{s∈T_c}(τ q_i · k_s)
//     b_c = Σ_{s∉T_c} d'_cs a_cs v_s               d': the dropout mask over [B, H, C, S]
//     o_i = Σ_{s∈T_c} d_it m_c p_is v_s + b_c      d: [B, H, N, min(k, S)]; t: rank of s in T_c
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]
//
// The weights of a row sum to one. With k >= S, or a cluster for every query, this is full
// attention.
//
// The causal form keeps the keys s <= i of T_c only, with m = 1 and b = 0:
//
//     p_is = softmax_{s∈T_c, s<=i}(τ q_i · k_s)    0 where no key of T_c is at or before i
//     o_i = Σ d_it p_is v_s
//
// IT IS NOT STRICTLY CAUSAL: g and T_c are chosen by queries and keys of the whole sequence, so the
// future leaks into an output through the selection; values of the future themselves never enter.
// With k >= N this is causal full attention.
//
// Masks: lengths (of keys) and query_lengths, as in clustered.h; in the causal form lengths apply
// to queries too.
//
// Backward. g and T have no gradient. The chain rule goes through two softmaxes, p over T_c and a
// over all keys, and through q̄, whose gradient is shared by the members. For s ∈ T_c let
// x_is = d_it (do_i · v_s):
//
//     dm_i = Σ_{s∈T_c} p_is x_is                   dm_c = Σ_{g_i=c} dm_i    db_c = Σ_{g_i=c} do_i
//     dz_is = m_c p_is (x_is − dm_i)               dq_i = τ Σ_{T_c} dz_is k_s
//     dk_s += τ dz_is q_i                          dv_s += d_it m_c p_is do_i
//     da_cs = dm_c for s ∈ T_c (0 with detach_mass=1, as the released code has it by accident)
//             d'_cs (db_c · v_s) elsewhere         dv_s += d'_cs a_cs db_c elsewhere
//     dz_cs = a_cs (da_cs − δ_c)                   δ_c = Σ_s a_cs da_cs
//     dk_s += τ dz_cs q̄_c                          dq_i += τ Σ_s dz_cs k_s / n_c
//
// and δ_c = m_c dm_c + b_c · db_c = Σ_{g_i=c} do_i · o_i; minus m_c dm_c with detach_mass.
//
// In the causal form m_c = 1 is a constant and b = 0: only the equations for dm_i, dz_is, dq_i,
// dk_s and dv_s of T_c remain, with sums over the keys s <= i of T_c, and q̄ takes no gradient.
//
// One pass over tiles of keys keeps, with clusters in the lanes, the running maximum and sum as
// full attention does, the sum over ALL keys of d' a v, and the best candidates; then b_c is that
// sum minus the terms of T_c, which are known then. Members of a cluster are adjacent after a sort
// by label, and their scores over T_c are small products. Nothing is N × S or C × S. (CUDA devices
// select T first and exclude it from b then: means.cuh, members.cuh.)
//
// Saved: q, k, v and out as handles, the labels (i32 [B, H, N]), T (i32 [B, H, C, min(topk, S)],
// ascending, padded with −1 if there are fewer keys, which has no weight), m and ℓ [B, H, C]; if
// causal only labels and T. Time: that of clustered.h plus 2 N k (E + M) forward and 2.5 times that
// backward.
//
// Read next: ops/attention/clustered/clustered.h; i_clustered.cpp; products.h; i_clustered_cpu.cpp.
#pragma once

#include "ops/attention/length.h"
#include "ops/dropout/mask.h"
#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

// The call in kernels. `lengths` and `query_lengths` hold B numbers or are null.
template <class T>
struct ImprovedClustered {
  View<const T, 4> q, k, v;
  View<const std::int32_t, 3> labels;
  const i64* lengths;
  const i64* query_lengths;
  i64 clusters, topk;  // topk <= S: the last axis of T
  T temperature;
  bool causal, detach_mass;
  double dropout;
  RandomKey random;

  constexpr i64 B() const { return q.size(0); }
  constexpr i64 N() const { return q.size(1); }
  constexpr i64 S() const { return k.size(1); }
  constexpr i64 H() const { return q.size(2); }
  constexpr i64 E() const { return q.size(3); }
  constexpr i64 M() const { return v.size(3); }
  constexpr i64 keys(i64 b) const { return length_of(lengths, b, S()); }
  constexpr i64 queries(i64 b) const { return length_of(query_lengths, b, N()); }
  // Of the members' own weights, and of their mean's outside T, with a row for each cluster.
  DropoutMask mask() const { return DropoutMask(random, dropout, topk, H() * N()); }
  DropoutMask bottom_mask() const {
    return DropoutMask(random.further(DrawPurpose::bottom_dropout), dropout, S(), H() * clusters);
  }
};

template <class Device, class T>
struct ImprovedClusteredKernels {
  // Computes topk [B, H, C, k] if `decide`, otherwise reads it. Writes all of out and, unless
  // causal, mass and log_sums [B, H, C] (0 and +∞ for an empty cluster).
  static void forward(const Device&, const ImprovedClustered<T>&, bool decide,
                      View<std::int32_t, 4> topk, View<T, 3> mass, View<T, 3> log_sums,
                      View<T, 4> out);

  // dq, dk and dv are packed, and all of them is written.
  static void backward(const Device&, const ImprovedClustered<T>&, View<const std::int32_t, 4> topk,
                       View<const T, 3> mass, View<const T, 3> log_sums, View<const T, 4> out,
                       View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk, View<T, 4> dv);
};

}  // namespace weft
