// Bi-BloSAN: attention with separate weights for each feature, inside blocks and between blocks.
// T. Shen, T. Zhou, G. Long, J. Jiang, C. Zhang, "Bi-directional block self-attention for fast and
// memory-efficient sequence modeling", ICLR 2018, arXiv 1804.00857, section 3; the details are
// those of the released code, taoshen58/BiBloSA.
//
// For sentences and documents: every feature of a position attends to the others by itself, and a
// direction, the positions before or those after, encodes the order of the words. Such weights are
// N × N × C numbers; here a sequence is split into blocks, attention runs inside each block, and
// then between rows that summarise the blocks. Given up are a causal form, since a block's row has
// seen its own future, and the weights between two positions of different blocks.
//
// One direction, with r the option `block`, C the option `width` (0: d) and act the option
// `activation`; I_t are the positions of block t, of which the last may be short:
//
//     h = act(x w_map + b_map)
//     s = A(h; w_token, b_token) in the blocks I_t
//     v_t = Σ_{i ∈ I_t} α_i ⊙ s_i,   α = softmax over I_t of s_i w_pool + b_pool, by feature
//     m = act(v w_block + b_block)
//     a = A(m; w_block_token, b_block_token) over all blocks
//     γ = σ([m ; a] w_gate + b_gate),   e = γ ⊙ m + (1 − γ) ⊙ a
//     [c | f] = [h ; s ; e_t] w_out + b_out                   e_t of the block of the position
//     out = σ(f) ⊙ act(c) + (1 − σ(f)) ⊙ h
//
// and directed attention A, feature by feature, forward over j < i and backward over j > i:
//
//     [p | g] = drop(h) w_token,   z_ij = 5 tanh((p_j + g_i + b_token) / 5)
//     s_i = Σ_j a_ij ⊙ h_j,   a_ij = softmax over the j seen of z_ij           none: s_i = 0
//
//     x [B, N, d]   out [B, N, D C]: D = 2 with direction=both, forward first, otherwise 1
//     w_map [D, d, C]   w_token, w_block_token [D, C, 2C]   w_pool, w_block [D, C, C]
//     w_gate [D, 2C, C]   w_out [D, 3C, 2C]   b_out [D, 2C]   all other biases [D, C]
//
// drop multiplies by a dropout mask, 0 or 1/(1 − rate), of its own for each A; only what scores are
// computed from is dropped, as in the released code. σ is the logistic function, by element.
//
// Masks: lengths. Positions beyond the length give 0 and are not seen, nor are blocks that begin
// there.
//
// Backward is that of the parts. A, the one with a derivation of its own, is the op of directed.h;
// its b_token is added to p before, so that the gradient of b_token is Σ_j dp_j. The pooling is
// block_weighted_mean (ops/blocks/blocks.h), the rest linear maps and pointwise functions. The
// product of e with w_out's last C rows is computed once a block, not once a position, and is added
// to all of the block: its gradient is the sum over the positions.
//
// Saved, numbers a direction, with n = ⌈N / r⌉ blocks: 11 (N + n) C, with dropout 12 (N + n) C. For
// a position: h, [p | g], s, the sums Σ_j w_ij of directed.h, the pooling's logits, [h ; s], σ(f),
// act(c), act(c) − h. For a block: v, m, [p | g], a, the sums, [m ; a], γ, m − a, e. With dropout
// also drop(h) and drop(m).
//
// Cost, a direction forward: operations 2 N C (d + 7 C) + 14 n C² for the maps, and for the pairs,
// of which, with features, there are C (N (r − 1) + n (n − 1)) / 2, 3 operations, an exponential
// and a division each; for a position and feature six exponentials more, for a block's four.
// Backward: the maps twice, 12 operations, an exponential and a division a pair, and for a position
// and feature four exponentials, for a block's two. For large r the two kinds of pairs cost the
// same at r = N^{1/3}; with the default r = 5 those between blocks dominate above N = 105.
// Backward's workspace is 3 N C numbers, gradients of the gate, and with both directions N C more.
//
// Read next: directed.h; biblosa.cpp.
#pragma once
