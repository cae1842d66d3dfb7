// Directed attention inside blocks of positions, feature by feature: the op of biblosa.h.
// T. Shen, T. Zhou, G. Long, J. Jiang, S. Pan, C. Zhang, "DiSAN: directional self-attention network
// for RNN/CNN-free language understanding", AAAI 2018, arXiv 1709.04696, eqs. 13 to 16.
//
// The blocks of a sequence have b positions each, from the start; the last one may be short. Within
// a block position i sees those before it, j < i, or with `later` those after it, j > i, and never
// itself. For every batch item, block and feature, without any sum over features:
//
//     z_ij = 5 tanh((p_j + g_i) / 5)
//     s_i  = Σ_j a_ij h_j,   a_i = softmax of z_i over the j that i sees           none: s_i = 0
//
//     [p | g] [B, N, 2C]   h, s [B, N, C]
//
// p belongs to the position that is attended to, g to the one that attends. A bias of the scores is
// contained in either.
//
// Backward. Let ds_i be the gradient of s_i, and t_ij = z_ij / 5. The derivative of the softmax is
// ∂a_ij/∂z_il = a_ij (1{j = l} − a_il), that of the tanh is ∂z_ij/∂p_j = ∂z_ij/∂g_i = 1 − t_ij², so
//
//     dz_ij = a_ij ds_i (h_j − s_i)                  since Σ_j a_ij h_j = s_i
//     dy_ij = dz_ij (1 − t_ij²)
//     dp_j  = Σ_i dy_ij,   dg_i = Σ_j dy_ij,   dh_j = Σ_i a_ij ds_i
//
// The tanh costs only a division. With P_j = exp(2 p_j / 5) and G_i = exp(2 g_i / 5), computed once
// a row, and q_ij = 1 / (1 + P_j G_i),
//
//     t_ij = 1 − 2 q_ij,   1 − t_ij² = 4 q_ij (1 − q_ij),   exp(z_ij − 5) = exp(−10 q_ij) =: w_ij
//
// and since z is at most 5, no maximum is needed: w is between e^−10 and 1, σ_i = Σ_j w_ij, and
// a_ij = w_ij / σ_i. The CPU does so, with features in the lanes of its vectors; there |2p/5| and
// |2g/5| are clamped to 80 (in f64 to 700), so that P G is finite: that changes a score only where
// p and g are 200 and cancel. On a CUDA device P_j G_i is exp(2 (p_j + g_i) / 5).
//
// Saved: [p | g], h and s as handles, σ [B, N, C]. Time, a pair and feature: a division and an
// exponential, and 3 operations forward, 12 backward; b² / 2 pairs a block. A CUDA device visits
// every pair twice in backward, once for each of its ends, so that each sum has one owner.
#pragma once

#include "autograd/apply.h"
#include "ops/attention/biblosa/directed_kernels.h"

namespace weft {

struct DirectedAttention {
  static constexpr const char* name = "directed_attention";
  i64 size;
  bool later;
  Tensor lengths;
  struct Saved {
    Tensor scores, h, s, sums;
  };
  Tensor forward(Saved&, const Tensor& scores, const Tensor& h) const;
  std::array<Tensor, 2> backward(const Saved&, const Tensor& ds) const;
};

// s of scores [B, N, 2C] and h [B, N, C] in blocks of `size` positions; lengths [B] i64 on their
// device, or undefined. Throws if the shapes do not fit.
Variable directed_attention(const Variable& scores, const Variable& h, i64 size, bool later,
                            const Tensor& lengths = {});

}  // namespace weft
