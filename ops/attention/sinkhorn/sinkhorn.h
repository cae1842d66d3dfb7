// Sinkhorn Transformer: attention to the query's own block of keys, and to one that a learnt sort
// selects.
// Y. Tay, D. Bahri, L. Yang, D. Metzler, D. Juan, "Sparse Sinkhorn attention", ICML 2020, arXiv
// 2002.11296, sections 3 and 4.
//
// A local window misses what is far away. Here blocks of keys are permuted by a learnt order, and
// each block of queries sees two blocks: its own, and the one that the order puts there. The order
// is a matrix over blocks, close to a permutation; it has a gradient. Given up are the rest of the
// sequence, and lengths: a sequence is whole blocks.
//
// Per batch item and head, with b the option `block`, n = N/b blocks, positions I_s of block s, and
// the option `temperature` τ of the scores. The matrix P [n, n] of the form without `causal`:
//
//     R_st = relu(mean of q over I_s · mean of k over I_t / √E)                 sort=attention
//     R_st = relu([Σ_{I_s} q ; Σ_{I_s} k] · column t of sort_weight)            sort=simple
//     L = (log(R + 1e-6) + noise) / sort_temperature
//     `iterations` times: L_st −= log Σ_t exp L_st, then L_st −= log Σ_s exp L_st;   P = exp L
//
// With `causal`, where a block sees one earlier block, or the learnt null block:
//
//     a_s = mean of q_0 … q_{sb},   c_t = Σ_{p ∈ I_t} mean of k_0 … k_p     sort=attention alone
//     R_st = a_s · c_t / √E for t < s, R_s,null = 0,   w_s = softmax of R_s / sort_temperature
//     P_st = w_st for the t of the largest weight, 0 for the others; at equal weights the null
//     block comes first, then the lowest t
//
// Then the r-th positions of blocks are mixed, and softmax runs over two blocks of keys at once:
//
//     k'_{sb+r} = Σ_t P_st k_{tb+r}  (+ P_s,null null_k),   v' in the same way of v and null_v
//     o_i = Σ_j d_ij a_ij [v' ; v]_j,   a_i = softmax of τ q_i · [k' ; k]_j over j ∈ I_s of both
//
//     q, k [B, N, H, E]   v, out [B, N, H, M]
//     sort_weight [H, 2E, n_max], with sort=simple; n_max >= n, and columns from n on are unused
//     null_k [H, E], null_v [H, M], with `causal`    d: the dropout mask, k' before k
//     noise [B, H, n, n]: of Gumbel's law, drawn in training, without `causal`; 0 elsewhere
//     picked [B, H, n]: the t of the largest weight, −1 for the null block, with `causal`
//
// Masks: causal, where a query sees all of k' and k up to itself; k' depends on blocks before its
// own, and w on positions up to the first one of its own, so that nothing of the future is seen.
// Without `causal` and with n = 1 every key occurs twice, and out is that of full attention if
// nothing is dropped. With `causal` block 0 always sees the null block.
//
// Backward. The engine for pairs gives dk' and dv'. Then
//
//     dP_st = Σ_r dk'_{sb+r} · k_{tb+r} + dv'_{sb+r} · v_{tb+r},   dP_s,null with the null rows
//     dk_{tb+r} += Σ_s P_st dk'_{sb+r},   dnull_k = Σ_s P_s,null Σ_r dk'_{sb+r}    of all items
//
// and in the same way for v. From P the gradient passes back through the half steps of L. One of
// them is z' = z − lse z along rows or columns, dz = dz' − exp(z') Σ dz' with the sum along the
// same line; dL begins as P ⊙ dP. Before the first one dR = dL / (sort_temperature (R + 1e-6))
// where R > 0, elsewhere 0. With `causal` the selection has no gradient and the weight has one:
// dw = dP at the selected place, elsewhere 0, and dR that of the softmax, divided by
// sort_temperature. All of this is in plain ops over n × n, as are the means behind R.
//
// Saved: q, k, v and out as handles; k and v by head, k' and v', B H N (2E + 2M) numbers; ℓ
// [B, H, N]; of the order B H n² (2 iterations + 3) numbers in f64, or with `causal` the running
// means of q and k, 2 B H N E numbers. Time a head forward: 4 N b (E + M) for the pairs, with
// `causal` 3 N b (E + M); 2 n² E for R; without `causal` 2 n² b (E + M) for the mixing. Backward
// takes 2.5 times as many for the pairs, and twice as many for the rest.
//
// Read next: ops/attention/engines/pairs/pairs.h, whose two parts are k' and k; sinkhorn.cpp.
#pragma once
