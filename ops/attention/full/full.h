// Full softmax attention.
// A. Vaswani et al., "Attention is all you need", NeurIPS 2017, arXiv 1706.03762, eq. 1. Streaming
// over keys as in M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", arXiv
// 1805.02867, and T. Dao et al., "FlashAttention", NeurIPS 2022, arXiv 2205.14135, algorithms 1, 4.
//
// Per batch item and head, query i, key j (τ: option `temperature`, 1/√E unless given):
//
//     z_ij = τ q_i · k_j + bias_ij                       −∞ where j is masked
//     ℓ_i  = log Σ_j exp z_ij,   a_ij = exp(z_ij − ℓ_i)
//     o_i  = Σ_j d_ij a_ij v_j                           d: the dropout mask, 0 or 1/(1 − rate)
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]   bias [B|1, H|1, N, S]
//
// Masks: causal (j <= i), lengths (j < lengths_b), query_lengths, bias. A query without any key,
// and one at or past its length, gives 0 and takes no gradient. A bias that hides a key is −∞: in
// f32 a row whose keys all have a finite bias of −1e5 or less has no exact gradient, since ℓ cannot
// hold log s beside such a maximum.
//
// Nothing of size N × S is held (but dbias, where a bias is given and wants it). Forward keeps, for
// a block of queries, the running maximum μ and sum s over the keys seen so far; when a tile of
// keys raises the maximum to μ', what was summed is scaled by exp(μ − μ'):
//
//     s ← s exp(μ − μ') + Σ_tile exp(z − μ'),   o ← o exp(μ − μ') + Σ_tile d exp(z − μ') v
//     at the end o ← o / s,  ℓ = μ + log s
//
// Backward, with δ_i = Σ_j a_ij d_ij (do_i · v_j) = do_i · o_i (true with dropout too):
//
//     dv_j = Σ_i d_ij a_ij do_i        da_ij = d_ij (do_i · v_j)
//     dz_ij = a_ij (da_ij − δ_i)       dbias = dz, summed over the axes that bias repeats on
//     dq_i = τ Σ_j dz_ij k_j           dk_j = τ Σ_i dz_ij q_i
//
// Saved: q, k, v, bias and out as handles, and ℓ [B, H, N]; a is computed again from ℓ, tile by
// tile, and the dropout mask drawn again. Time 4 N S (E + M) forward and 2.5 times that backward
// (half of both when causal); bytes saved 4 B H N.
#pragma once

#include "ops/attention/length.h"
#include "runtime/device.h"
#include "runtime/random.h"
#include "runtime/view.h"

namespace weft {

// What the kernels see. `lengths` and `query_lengths` hold B numbers or are null; a bias without
// data stands for none; its repeated axes have stride 0.
template <class T>
struct FullAttention {
  View<const T, 4> q, k, v, bias;
  const std::int64_t* lengths = nullptr;
  const std::int64_t* query_lengths = nullptr;
  T temperature = 1;
  bool causal = false;
  double dropout = 0;
  RandomKey random = {};

  constexpr std::int64_t B() const { return q.size(0); }
  constexpr std::int64_t N() const { return q.size(1); }
  constexpr std::int64_t S() const { return k.size(1); }
  constexpr std::int64_t H() const { return q.size(2); }
  constexpr std::int64_t E() const { return q.size(3); }
  constexpr std::int64_t M() const { return v.size(3); }
  constexpr std::int64_t keys(std::int64_t b) const { return length_of(lengths, b, S()); }
  constexpr std::int64_t queries(std::int64_t b) const {
    return length_of(query_lengths, b, N());
  }
};

template <class Device, class T>
struct FullKernels {
  // `out` and `log_sums` [B, H, N] are written whole; log_sums is +∞ for a query without keys, so
  // that exp(z − ℓ) is 0.
  static void forward(const Device&, const FullAttention<T>&, View<T, 4> out, View<T, 3> log_sums);
};

template <class Device, class T>
struct FullBackwardKernels {
  // dq, dk, dv are written whole; dbias [B, H, N, S] too, unless it has no data.
  static void backward(const Device&, const FullAttention<T>&, View<const T, 4> out,
                       View<const T, 3> log_sums, View<const T, 4> dout, View<T, 4> dq,
                       View<T, 4> dk, View<T, 4> dv, View<T, 4> dbias);
};

}  // namespace weft
