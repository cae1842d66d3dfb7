// CSP at a finite temperature: doubly stochastic maps instead of permutations.
// S. Yuan, H. Xu, "Towards better multi-head attention via channel-wise sample permutation", 2024,
// arXiv 2410.10914, eq. 8 and 9, Theorem 2. The option `sinkhorn` of csp.
//
// For every channel c let u_c be the shifted samples (csp.h), and u_c^k those of its group k, of g
// samples. With t the option `sinkhorn` and τ the option `temperature`,
//
//     Z = u_1^k (u_c^k)ᵀ / τ                                                      [g, g]
//     T = Sinkhorn_t(exp Z): t times, rows divided by their sums, then columns
//     out_c^k = T u_c^k
//
// for c = 1, too. Columns of T sum to 1, so that the sum of a group is preserved; rows do as t → ∞.
// T is then the plan of entropic optimal transport, and as τ → 0, if the order of a group's samples
// is unique, the permutation which csp applies with order=reference (Theorem 2). The number of
// steps that this takes grows as 1/τ. As τ → ∞ each sample becomes the mean of its group.
//
// Unlike a permutation T has a gradient, and the first channel gets that of all others: they are
// attention over a group, with q = u_1, keys and values u_c, heads of width 1 for channels, and 2t
// half steps. So forward and backward are those of ops/attention/engines/pairs/potentials.h, whose
// τ is 1/τ here. With lengths the option `groups` is refused: give `group`.
//
// In f32 a rounding of Z is a relative one of 2⁻²⁴ |u u'| / τ in T, and the gradient has another
// 1/τ: below τ = 0.1 all of it is computed in f64, and rounded once.
//
// Saved: u, and 2t potentials for every sample. Time is N G C times t + 2 products forward and
// 3t + 5 backward, where csp has N C log G.
#pragma once

#include "ops/attention/engines/pairs/potentials_attention.h"

namespace weft {

struct CspTransport {
  i64 steps = 0;  // t; 0: permutations
  double temperature = 1;
};

// out [B, N, C] of the shifted samples u [B, N, C], in groups of `group` consecutive ones; the last
// may be short. `attention` is potentials_attention() or its definition.
Variable csp_transport(const CspTransport& transport, const Variable& u, i64 group,
                       const Tensor& lengths, PotentialsFunction attention);

// Its cost, without the shift.
AttentionCost csp_transport_cost(const CspTransport& transport, i64 B, i64 N, i64 C, i64 group,
                                 DType type);

}  // namespace weft
