// Linformer: attention to r mixtures of the keys.
// S. Wang et al., "Linformer: self-attention with linear complexity", arXiv 2006.04768, eq. 7.
//
// For sequences of one length, above all pictures: a learnt matrix mixes the keys into r slots, and
// another one the values, so that time and memory are linear in the length. A slot mixes by
// position, independent of the content. Given up are a causal form, since every slot sees all
// positions, and sequences longer than the learnt matrices.
//
// Per batch item and head, with P_jr = proj_k, R_jr = proj_v for position j and slot r, which all
// heads share, and τ the option `temperature`:
//
//     k'_r = Σ_j P_jr k_j,   v'_r = Σ_j R_jr v_j                   j < S, within the length
//     o_i  = Σ_r d_ir a_ir v'_r,   a_i = softmax of τ q_i · k'_r over the slots
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]
//     proj_k, proj_v [N_max, rank]; the first S rows count            d: the dropout mask
//
// With share_kv=1 there is no proj_v, and R = P. Rows of A Rᵀ, the weights on the values, have any
// sign and sum. If P and R are the identity, S = rank, this is full attention.
//
// Masks: lengths of both sequences. Keys and values at and beyond the length count as 0, so that an
// item gives the same result as alone. An item without keys gives 0.
//
// Backward. With dk', dv' from attention over the slots,
//
//     dk_j = Σ_r P_jr dk'_r          dP_jr = Σ k_j · dk'_r over items and heads
//     dv_j = Σ_r R_jr dv'_r          dR_jr = Σ v_j · dv'_r
//
// k, v and their gradients are viewed as [B, S, H·E], where the heads of a position are contiguous:
// each of these sums is one product an item, dP's sum over heads is inside it, and nothing is
// copied. Positions that lengths hide are set to 0 in a copy of k and v. Attention over the slots
// is the engine for pairs.
//
// Saved: the inputs and out as handles; k', v' [B, rank, H, E + M] and ℓ [B, H, N]; with lengths
// also a copy of k and v. Time 7 N rank (E + M) a head for attention, 6 S rank (E + M) for the
// products.
//
// Read next: ops/attention/engines/pairs/pairs.h, ops/matmul/matmul.h; linformer.cpp.
#pragma once
