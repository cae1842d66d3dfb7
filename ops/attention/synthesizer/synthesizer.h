// Synthesizer: attention whose scores are learnt by position, or computed from the query alone.
// Y. Tay, D. Bahri, D. Metzler, D. Juan, Z. Zhao, C. Zheng, "Synthesizer: rethinking self-attention
// in transformer models", ICML 2021, arXiv 2005.00743, section 3.
//
// It asks what products of queries and keys are good for. Here a score is a number that is learnt
// for a pair of positions (random), or that a query computes for each position independent of its
// content (dense); either can be added to products. Given up are sequences longer than the learnt
// tensors, and in the first two modes weights that depend on the input at all.
//
// Per batch item and head, for positions i and j, with the option `mode`:
//
//     random               r_ij = random_ij
//     factorized-random    r_ij = Σ_f random1_if random2_fj
//     dense                r_ij = relu(h_i) · w2_j + b2_j
//     factorized-dense     r_ij = x_i,(j mod a) y_i,⌊j/a⌋,   x_i = relu(h_i) w2a + b2a,
//                                                            y_i = relu(h_i) w2b + b2b
//     z_ij = r_ij, or τ q_i · k_j + r_ij with dot=1
//     o_i  = Σ_j d_ij a_ij v_j,   a_i = softmax of z_i over the keys that query i sees
//
//     v, out [B, N, H, M]      q, k [B, N, H, E], with dot=1 alone      d: the dropout mask
//     hidden h [B, N, H, F]: a projection of the layer, before the relu; F: option `hidden`, 0: E
//     random [H, N_max, N_max]   random1 [H, N_max, rank]   random2 [H, rank, N_max]
//     w2 [H, F, N_max]   b2 [H, N_max]   w2a [H, F, a]   b2a [H, a]   w2b [H, F, c]   b2b [H, c]
//
// a is the option `factor`, ⌈√N_max⌉ if it is 0, and a c >= N. Of parameters for N_max positions
// the first N are used; the rest has the gradient 0. With r = 0 an output is the mean of the
// values, or full attention with dot=1.
//
// Masks: causal, lengths, which apply to keys and queries.
//
// Backward. The engine for pairs gives dz. In two modes scores are products, so that nothing of N ×
// N is stored: queries [τ q_i, random1_i] with keys [k_j, random2_j], and [τ q_i, relu(h_i), 1]
// with [k_j, w2_j, b2_j]. Their gradients are the parts of the engine's dq and dk, summed over the
// items if a part is the same for all. In the two others r is a bias, whose gradient is dz:
//
//     drandom_ij = Σ_items dz_ij
//     dx_im = Σ_{j mod a = m} dz_ij y_i,⌊j/a⌋          dy_im = Σ_{⌊j/a⌋ = m} dz_ij x_i,(j mod a)
//
// ops/attention/engines/pairs/pairs.h derives dz, dq, dk and dv.
//
// Decoding keeps keys, or parts of keys, and values of the positions so far, and computes row i of
// r. It refuses positions beyond N_max.
//
// Saved: v and out as handles, and ℓ [B, H, N]; the queries and keys above if they are
// concatenated, and relu(h); with factorized-dense r, which is N × N, x and y. random and
// factorized-dense store dz, too. Time is that of full attention with E the width of these queries:
// rank, F + 1, and E more with dot=1; the other two have E or no width at all.
//
// Read next: ops/attention/engines/pairs/pairs.h; synthesizer.cpp.
#pragma once
