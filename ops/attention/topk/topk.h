// Attention to the k largest keys of every query ("oracle-top").
// A. Vyas, A. Katharopoulos, F. Fleuret, "Fast transformers with clustered attention", NeurIPS
// 2020, arXiv 2007.04825, section 4.1: the reference for improved clustered attention, which finds
// such keys without comparing all of them.
//
// For measuring what an approximation of the keys loses: each query keeps its k largest scores,
// found among all of them. The softmax then runs over k keys. Given up are the many small weights,
// whose sum is large where scores are even; and the selection still takes quadratic time.
//
// Per batch item and head, query i, key j:
//
//     z_ij = q_i · k_j                                   over the keys that the masks show
//     T_i  = the indices of the k largest z_ij, at equal z the lower index; all where there are
//            no more than k. NaN counts as the largest, so that it reaches the output.
//     ℓ_i  = log Σ_{j ∈ T_i} exp τ z_ij,   a_ij = exp(τ z_ij − ℓ_i) for j ∈ T_i, otherwise 0
//     o_i  = Σ_{j ∈ T_i} d_it a_ij v_j                   t: the rank of j in T_i by index
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]
//     topk [B, H, N, min(k, S)]: T_i ascending, −1 behind the last where fewer keys are seen
//
// k is the option `topk`, at most 4,096, τ the option `temperature`, 1/√E unless given, and d the
// dropout mask, [B, H, N, min(k, S)].
//
// Masks: causal, lengths, query_lengths. A query without keys gives 0. With k >= S this is full
// attention, dropout included; with k = 1 it copies the value of the largest key.
//
// Backward. The choice of T has no derivative. With T fixed this is full attention over the keys of
// T_i, so that the derivative of the softmax, ∂a_ij / ∂(τ z_il) = a_ij (1{j = l} − a_il), gives
//
//     dv_j += d_it a_ij do_i        da_ij = d_it (do_i · v_j)
//     dz_ij = a_ij (da_ij − Σ_{l ∈ T_i} a_il da_il)            the gradient of τ z_ij
//     dq_i  = τ Σ_{j ∈ T_i} dz_ij k_j          dk_j += τ dz_ij q_i
//
// Saved: q, k, v as handles, topk in 32 bits and ℓ [B, H, N]. Time a head: 2 N S E operations for
// the products whose largest are selected, half when causal; 2 N k (E + M) for the rest of forward
// and N k (6 E + 4 M) backward. Nothing of N × S is stored: a block of queries streams over tiles
// of keys and keeps, for each, what exceeds the k-th largest so far.
//
// Read next: topk.cpp; topk_cpu.cpp; topk_select.cu.
#pragma once

#include "ops/attention/length.h"
#include "ops/dropout/mask.h"
#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

// The call in kernels. `lengths` and `query_lengths` hold B numbers or are null.
template <class T>
struct TopkAttention {
  View<const T, 4> q, k, v;
  const i64* lengths = nullptr;
  const i64* query_lengths = nullptr;
  T temperature = 1;
  bool causal = false;
  double dropout = 0;
  RandomKey random = {};

  constexpr i64 B() const { return q.size(0); }
  constexpr i64 N() const { return q.size(1); }
  constexpr i64 S() const { return k.size(1); }
  constexpr i64 H() const { return q.size(2); }
  constexpr i64 E() const { return q.size(3); }
  constexpr i64 M() const { return v.size(3); }
  constexpr i64 keys(i64 b) const { return length_of(lengths, b, S()); }
  constexpr i64 queries(i64 b) const { return length_of(query_lengths, b, N()); }
  // The number of keys that query i of batch item b sees, from the first one on.
  constexpr i64 seen(i64 b, i64 i) const {
    if (i >= queries(b)) return 0;
    return causal && i + 1 < keys(b) ? i + 1 : keys(b);
  }
  // Of k chosen keys.
  DropoutMask mask(i64 k) const { return DropoutMask(random, dropout, k, H() * N()); }
};

template <class Device, class T>
struct TopkSelectKernels {
  // Writes all of topk [B, H, N, k].
  static void select(const Device&, const TopkAttention<T>&, View<std::int32_t, 4> topk);
};

template <class Device, class T>
struct TopkKernels {
  // Writes all of out and log_sums [B, H, N].
  static void forward(const Device&, const TopkAttention<T>&, View<const std::int32_t, 4> topk,
                      View<T, 4> out, View<T, 3> log_sums);
  // Writes all of dq, dk, dv.
  static void backward(const Device&, const TopkAttention<T>&, View<const std::int32_t, 4> topk,
                       View<const T, 3> log_sums, View<const T, 4> dout, View<T, 4> dq,
                       View<T, 4> dk, View<T, 4> dv);
};

}  // namespace weft
