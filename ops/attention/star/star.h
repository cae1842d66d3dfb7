// Star-Transformer: satellites that see their neighbours and a relay, which sees them all.
// Q. Guo, X. Qiu, P. Liu, Y. Shao, X. Xue, Z. Zhang, "Star-Transformer", NAACL 2019, arXiv
// 1902.09113, section 3 and algorithm 1; norms, biases and leaky relus are those of the released
// code, in fastNLP.
//
// For sentences, where most of what a word needs is next to it: every position, a satellite,
// attends to its two neighbours, to itself, to its own input and to one relay row, which attends to
// all satellites. Any two positions are two edges apart, and time is linear in the length. Given up
// are a causal form, since the relay has seen the future, and information between two distant
// positions that the relay cannot hold.
//
// h_i is the state of satellite i, s that of the relay, e_i = x_i. Initially h = e, and s is the
// mean of x. There are T steps, T the option `steps`; step t uses row t of all parameters:
//
//     g = LN(h)                                                                   ε = 10⁻⁶
//     o_i = Σ_c d_ic softmax_c(q_i · k_ic / √E) v_ic       c over g_{i−1}, g_i, g_{i+1}, e_i, s
//     h_i ← leaky_relu(o_i ring_out + ring_out_bias)
//     r = Σ_j d_j softmax_j(q · k_j / √E) v_j              j over s, h_1 … h_n, q of s
//     s ← leaky_relu(r star_out + star_out_bias)
//     out = h
//
//     x, out [B, N, d]            norm_gain, norm_bias [T, d]
//     ring_qkv, star_qkv [T, d, 3A]   ring_qkv_bias, star_qkv_bias [T, 3A]   A = H E
//     ring_out, star_out [T, A, d]    ring_out_bias, star_out_bias [T, d]
//     [q | k | v] = row · ring_qkv + ring_qkv_bias for satellites, of star_qkv for the relay
//     d_ic, d_j: dropout masks, 0 or 1/(1 − rate)         leaky_relu(x) = x, or 0.01 x where x <= 0
//
// H is the option `heads`, E the option `head_width` (0: ⌊d / H⌋), and heads are ranges of columns.
// q of the satellites is computed from g; e and s are not normalised. ends=ring: the last position
// is the neighbour of the first. With two positions each is both neighbours of the other, a single
// one is its own, and each counts as often as it occurs. ends=zero: a missing neighbour counts with
// a key and a value of 0, without their bias. The relay of the last step is not computed: nothing
// sees it.
//
// Masks: lengths. The ring closes, or ends, at an item's own length; rows beyond it give 0.
//
// The satellites are attention over lists (ops/attention/engines/lists/lists.h) with five edges
// each, over the rows [g ; e ; s], whose keys and values are concatenated. The relay has a single
// query, and computing keys and values of all of h would add a third to the satellites' products.
// But with star_qkv = [Wq | Wk | Wv] and star_qkv_bias = [bq | bk | bv]
//
//     q · (y Wk + bk) = (Wk q) · y + q · bk              of which no softmax sees the second term
//     Σ_j a_j (y_j Wv + bv) = (Σ_j a_j y_j) Wv + (Σ_j a_j) bv
//
// and so, with c a head and y_j the rows of [s ; h],
//
//     u_c = Wk_c q_c,   a_cj = d_cj softmax_j(u_c · y_j / √E)
//     r_c = (Σ_j a_cj y_j) Wv_c + (Σ_j a_cj) bv_c
//
// which takes 2 H products of a row instead of 2 A. The keys' columns of star_qkv_bias have the
// gradient 0.
//
// Backward is that of the parts: linear maps, norms, the lists' and, for the relay, matmul's and
// softmax's. x is e, h of the first step and the initial relay, and its gradient is summed over all
// steps: dx_i = dh_i + Σ_t de_i + ds / n.
//
// Saved, numbers a step and item: g and the norm's own copy, keys and values of [g ; e ; s], q and
// o, and, except in the last step, h: N (3 d + 6 A); ℓ and, for the relay, a: 2 N H; once for all
// items the matrices as they are multiplied, 3 d A, and, for all steps, the lists, 21 N.
//
// Cost, a step forward, for an item: operations 12 N d A for the maps of the satellites, 20 N A for
// their attention, 4 N H d for the relay; 5 N H exponentials and N H for the relay. Backward 2
// times as many operations, attention 2.5 times, and 5 N H exponentials. With A = d = 512 the maps
// take more than 99 % of the operations. Backward's workspace is 5 N A numbers, the gradients of
// keys, values and q, and the rows of one head (lists.h).
//
// Read next: ring.h (the edges); star.cpp; ops/attention/engines/lists/lists.h.
#pragma once
