// Transformer-XL: softmax attention over a memory and the sequence, with scores that depend on the
// distance.
// Z. Dai, Z. Yang, Y. Yang, J. Carbonell, Q. V. Le, R. Salakhutdinov, "Transformer-XL: attentive
// language models beyond a fixed-length context", ACL 2019, arXiv 1901.02860, section 3.3; the
// order of sines and cosines, and the initialisation of parameters, are those of the released code,
// kimiyoung/transformer-xl.
//
// For models of text that is longer than a training window: the layer's inputs of the previous
// segment are kept, and seen by this one. That needs positions with the same meaning in both, so a
// score depends on how far back a key is, and on nothing else about its position. Given up are the
// non-causal form, cross-attention, and half the speed: a score costs two products.
//
// Query i is at position S − N + i; the first S − N keys are the memory. Per batch item and head,
// with τ the option `temperature`, δ the distance, and D the option `position_width`:
//
//     s_ij = τ ((q_i + u) · k_j + (q_i + v) · w_rᵀ ρ_δ)      δ = S − N + i − j >= 0
//     ρ_δ  = [sin(δ f) ; cos(δ f)],   f_c = 10000^(−2c/D),   0 <= c < D/2
//     o_i  = Σ_j d_ij a_ij v_j,   a_i = softmax of s_i over the keys with δ >= 0
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]   S >= N
//     w_r [D, H, E]    u, v: pos_bias_u, pos_bias_v [H, E]      d: the dropout mask
//
// If the option is 0, D is H·E, or one more if that is odd. With `clamp` > 0, δ is clamped to it in
// ρ: more distant keys count as that far away.
//
// Masks: causal only. Lengths, where S = N, apply to queries and keys.
//
// How it is computed. With r_δ = w_rᵀ ρ_δ [H, S, E] the score is that of attention by distance
// (ops/attention/engines/pairs/distances.h),
//
//     s_ij = τ (q'_i · k_j + q'_i · r_δ + c_δ),   q' = q + u,   c_δ = (v − u) · r_δ
//
// whose passes read r along the diagonals of a tile, so that nothing is shifted or copied, and no N
// × S is stored. r and c are S · D · H · E multiplications, once a call for all queries and items.
//
// Backward. The engine gives dq', dk, dr and dc, and the gradient of the values. The rest is that
// of plain ops, with u and v the two biases and Σ_i over the queries of all items:
//
//     dq = dq'                 dv = Σ_δ dc_δ r_δ           du = Σ_i dq'_i − dv
//     dr_δ += dc_δ (v − u)     dw_r = Σ_δ ρ_δ dr_δᵀ
//
// The model keeps the memory and stops its gradient. In one layer a long sequence equals two
// segments, of which the second sees the first as its memory; with more layers it does not, since
// the first segment's upper layers are not recomputed.
//
// Decoding keeps keys and values in order, and r and c once for all steps.
//
// Saved: q', k, v, ρ, r and c, ℓ [B, H, N], and out. Time is 2 N S (2 E + M) / 2 forward, where S =
// N, and 2 N S (6 E + 2 M) / 2 backward.
//
// Read next: ops/attention/engines/pairs/distances.h; transformer_xl.cpp.
#pragma once
