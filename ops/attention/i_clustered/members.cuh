// The second stage of improved clustered attention on CUDA devices: the selection of a cluster's
// keys, and its members' own scores on these. Equations: i_clustered.h.
#pragma once

#include "ops/attention/clustered/groups.cuh"
#include "ops/attention/i_clustered/means.cuh"

namespace weft {

template <class T>
struct SelectionKernels {
  // T [B, H, C, k] by the scores of p's means over p's keys; p.topk is not read.
  static void select(const Cuda&, const MeansAttention<T>& p, std::int32_t* topk);
};

template <class T>
struct MembersAttention {
  View<const T, 4> q, k, v;
  SortedQueries sorted;
  const std::int32_t* topk;  // [B, H, C, k]
  i64 count;        // k
  const T* mass;             // m [B, H, C]; null: 1
  T temperature;
  bool causal;
  double dropout;
  RandomKey random;

  constexpr i64 heads() const { return sorted.B * sorted.H; }
  DropoutMask mask() const { return DropoutMask(random, dropout, count, sorted.H * sorted.N); }
};

// log Σ_{s∈T_c} exp(τ q_i · k_s) and dm_i, [B, H, N]; not written for queries beyond the length.
template <class T>
struct MemberSums {
  T* log_sums;
  T* dmass;
};

template <class T>
struct MembersKernels {
  // Writes all of out [B, N, H, M]: the terms of T, and `bottom` b [B, C, H, M] unless that has no
  // data.
  static void forward(const Cuda&, const MembersAttention<T>&, View<const T, 4> bottom,
                      View<T, 4> out);

  // Writes all of dq [B, N, H, E], from the members' own scores; and their sums.
  static void backward(const Cuda&, const MembersAttention<T>&, View<const T, 4> dout,
                       View<T, 4> dq, const MemberSums<T>&);

  // dm_c = Σ_{g_i = c} dm_i [B, H, C]; with `detach`, m_c dm_c is subtracted from δ_c and dm_c
  // becomes 0.
  static void sum_of_mass(const Cuda&, const MembersAttention<T>&, const MemberSums<T>&,
                          bool detach, T* dmass, T* delta);
};

template <class T>
struct MembersKeysKernels {
  // dk and dv of the members' own scores: added if `add`, otherwise all of them is written.
  static void backward(const Cuda&, const MembersAttention<T>&, const MemberSums<T>&,
                       View<const T, 4> dout, bool add, View<T, 4> dk, View<T, 4> dv);
};

}  // namespace weft
