// MEGA: gated attention of one head after a learnt moving average.
// X. Ma, C. Zhou, X. Kong, J. He, L. Gui, G. Neubig, J. May, L. Zettlemoyer, "Mega: moving average
// equipped gated attention", ICLR 2023, arXiv 2209.10655, eqs. 2 to 16; the order of the columns
// and the initialisation of parameters are those of the released code, facebookresearch/mega.
// attention=csp is that of CSP's Table 7 (arXiv 2410.10914).
//
// For long sequences in which near positions matter more than distant ones: a moving average of
// decaying exponentials mixes neighbours, so that attention has one head and can be limited to
// chunks, between which the average carries information. A gate chooses between the new value and
// x. Given up are several heads, and with chunks direct attention to another chunk.
//
// x̃ = LN(x), ε = 10⁻⁵; y its moving average (ops/moving_average), of the past and of the future,
// with `causal` of the past alone, truncated after `truncation` lags (0: not truncated):
//
//     y_i = Σ_τ κ_τ x̃_{i−τ} + κ'_τ x̃_{i+τ}
//     κ_τ = Σ_k p β γ (1 − p α)^τ / √n              over the states k = 1 … n of a channel, of each
//     p = σ(ema_delta),   α = σ(ema_alpha),   β = ema_beta,   γ = ema_gamma
//
//     v = silu(x̃ w_v + b_v)
//     [u | z | r | x̂] = silu(y + ema_omega ⊙ x̃) w_x + b_x;   u ← σ(u), z ← silu(z), r ← silu(r)
//     q = z ⊙ gamma[0] + beta[0],   k = z ⊙ gamma[1] + beta[1]
//     o_i = Σ_j d_ij a_ij v_j       over the keys j that i sees; with `causal` those up to i
//
//     softmax          a_i = softmax of q_i · k_j / √key_width + rel_bias[max − 1 + j − i]
//     laplace, relu2   a_ij = f(q_i · k_j / n_i + rel_bias[max − 1 + j − i]), n_i: keys that i sees
//     csp              o = csp(v), of one head, with the options `csp_…`; q and k are not used
//
//     out = x + u ⊙ (silu(x̂ + (o ⊙ r) w_h + b_h) − x)
//
//     x, out [B, N, d]   norm_gain, norm_bias, ema_omega [d]   w_v [d, h]   b_v [h]
//     ema_delta, ema_alpha, ema_beta, ema_gamma [D, d, n]: D = 2, past and future; causal D = 1
//     w_x [d, 2d + z + h]   b_x [2d + z + h]   w_h [h, d]   b_h [d]   gamma, beta [2, z]
//     rel_bias [2 max − 1]   d_ij: the dropout mask, of csp's output with csp
//
// z, h and n are the options key_width, value_width (0: 2d) and states. With `chunk` = c a position
// sees only those of its chunk ⌊i/c⌋, of which the last may be short, and i and j count from its
// start; max is c then, otherwise the longest sequence. It may be more. csp has neither chunks nor
// a causal form. f: ops/attention/engines/elementwise/attention.h.
//
// The block has its own norm and residual. The paper's layer has a feed-forward map after it, y +
// W₂ silu(W₁ LN(y)): a transformer block with the wiring prenorm, whose map uses SiLU after a
// mechanism with a residual of its own (nn/transformer.h).
//
// Dropout is that of the weights, or of csp's output; that of the average, which the released code
// has besides, is not here.
//
// Masks: lengths, and `causal`. Positions beyond the length are 0 for the average, hidden from the
// attention, and give 0.
//
// Backward is that of the parts, from the last to the first: gates and linear maps, the attention
// (engines/pairs/pairs.h or the elementwise engine), the average and the norm. Gradients are summed
// in x, which is added directly and by u, and in x̃, from which v, y and ema_omega ⊙ x̃ are
// computed:
//
//     dx  = dout ⊙ (1 − u) + LN's of dx̃
//     dx̃ = dv' w_vᵀ + ema_omega ⊙ dm + Σ_τ κ_τ dm_{i+τ} + κ'_τ dm_{i−τ}
//
// with dv' the gradient before v's silu and dm that before the silu of y + ema_omega ⊙ x̃.
//
// A softmax is invariant to a constant added to all of its scores, so the part q · beta[1] of q ·
// k, which is the same for all keys, drops out: the kernel gets k = z ⊙ gamma[1], and the gradient
// of beta[1] is 0. The reason is accuracy, not the addition saved. Gradients of the scores are sums
// dq_i = Σ_j ds_ij k_j with Σ_j ds_ij = 0, and z ⊙ gamma is small while gamma is near its initial
// value: with beta[1] in the keys nearly all of the sum would cancel, and leave rounding errors.
// With beta = 30 and gamma = 0.01 these exceed the error allowed for f32's gradients
// (tests/attention/mega.cpp).
//
// Decoding keeps n states a channel, with a truncation the last rows of x̃, and keys and values of
// the chunk so far, or of all positions.
//
// Saved: some N (7 d + 6 h + 4 z) numbers an item, ℓ of softmax or permutations of csp; no N × N.
// Time forward: 2 N (2 d² + d z + 3 d h) for the maps, 4 D N d n for the average, 2 N c (z + h) for
// attention; twice that backward for the maps, three times for the average, 2.5 (softmax) or 3
// times for attention.
//
// Read next: mega.cpp, from `mapped` on; ops/moving_average/moving_average.h.
#pragma once

#include "ops/attention/mechanism.h"

namespace weft {

// The attention alone, not attention=csp: q, k [B, N, z], v [B, N, h] and rel_bias → [B, N, h].
Variable mega_attention(const AttentionSpec& spec, const AttentionCall& call, const Variable& q,
                        const Variable& k, const Variable& v, const Variable& rel_bias);

}  // namespace weft
