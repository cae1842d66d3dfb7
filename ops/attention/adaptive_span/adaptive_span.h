// Adaptive span: each head learns how far back it looks.
// S. Sukhbaatar, E. Grave, P. Bojanowski, A. Joulin, "Adaptive attention span in transformers", ACL
// 2019, arXiv 1905.07799, sections 2.1 and 2.2; the penalty and the window that leaves out the
// query's own position are those of the released code, facebookresearch/adaptive-span.
//
// For models of long text, in most of whose heads only nearby positions matter: a few heads learn
// long spans, the others short ones, and time depends on the learnt spans. Given up are the
// non-causal form and cross-attention; and a position does not see itself, which the residual
// around the layer makes up for.
//
// Query i is at position S − N + i and sees the L positions before it, L the option `max_span`, if
// there are so many keys. Per batch item and head, with δ the distance, R the option `ramp`, z the
// head's span in [0, 1], p = key_pe, and τ the option `temperature`:
//
//     s_ij = τ (q_i · k_j + q_i · p_{δ−1})                   δ = S − N + i − j,  1 <= δ <= L
//     m_δ  = clamp((z L − (δ − 1)) / R + 1, 0, 1)
//     a_i  = softmax of s_i over the keys with m_δ > 0
//     w_ij = m_δ a_ij / (Σ_j m_δ a_ij + 10⁻⁸),   o_i = Σ_j d_ij w_ij v_j
//     penalty = `penalty` · L · mean over heads of z
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]   S >= N
//     span [H]         key_pe [L, E], shared by heads; without it scores are τ q · k
//     d: the dropout mask
//
// So the first zL + 1 distances have the factor 1, the factors of the next R decrease to 0, and no
// pair beyond them is computed. The paper's softmax runs over all L: its 10⁻⁸ then includes those
// with factor 0 too, which changes no weight by more than 10⁻⁶ unless these have nearly all of the
// softmax. A query without keys, the first of a sequence, gives 0.
//
// Spans start at 0, where R positions are seen, and are clamped to [0, 1] after every update. A
// checkpoint whose spans are outside of [0, 1] is refused. The penalty is a term of the loss, added
// once for a layer whose weights are shared over depth.
//
// Masks: causal only. Lengths, where S = N, apply to queries and keys. With S > N the first S − N
// positions are those before the queries: a memory, or the past in decoding.
//
// Backward. The softmax, m and the division are one normalisation with the weight m + 10⁻⁸ of each
// key; ops/attention/engines/pairs/distances.h derives it, with dm/dz = L / R where 0 < m < 1.
//
// Decoding keeps keys and values of the last L + 1 positions, the newest included, in a buffer for
// twice as many, so that the kept ones are moved to its front once in L + 1 steps; a step looks
// back as far as the span of each head.
//
// Saved: q, k, v, span, key_pe and out as handles, and ℓ [B, H, N]. Time, with c = zL + R keys a
// query, is 2 N c (2 E + M) forward and 2 N c (6 E + 2 M) backward; without key_pe E less forward
// and 3 E backward. Backward stores the gradient of key_pe for each item and head until all are
// summed.
//
// Read next: ops/attention/engines/pairs/distances.h; adaptive_span.cpp.
#pragma once
