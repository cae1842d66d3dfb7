// Full softmax attention whose keys are the queries.
// A. Vyas, A. Katharopoulos, F. Fleuret, "Fast transformers with clustered attention", NeurIPS
// 2020, arXiv 2007.04825, section 4.1 ("shared-full"); N. Kitaev, Ł. Kaiser, A. Levskaya,
// "Reformer", ICLR 2020, arXiv 2001.04451, section 2 (shared-QK, keys of length 1).
//
// For comparison with attention by hashes (ops/attention/lsh/lsh.h), which needs queries and keys
// of one space: here each query attends to all of them, and nothing is lost to hashing. Given up
// are keys with a projection of their own, and with it cross-attention; time is quadratic in the
// length, as that of full attention.
//
// Per batch item and head (the equations of ops/attention/full/full.h with these keys):
//
//     k_j = q_j, or, with normalize_keys, k_j = q_j / n_j,  n_j = ‖q_j‖₂      0 where q_j = 0
//     o   = full attention of q, k, v
//
//     q [B, N, H, E]   v [B, N, H, M]   out [B, N, H, M]
//
// Masks: causal (j <= i) and lengths, which apply to keys and queries.
//
// Backward. Full attention gives dq, dk, dv. Without normalize_keys ∂k_j / ∂q_j = I; with it the
// derivative is ∂k_j / ∂q_j = (I − k_j k_jᵀ) / n_j, and so
//
//     dq_j += dk_j,  or, with normalize_keys,  dq_j += (dk_j − k_j (k_j · dk_j)) / n_j
//                                                      the added term is 0 where q_j = 0
//
// Attention is a call of the engine for pairs, the keys are plain ops, and the tape adds up the two
// gradients of q. In bf16 the mechanism is given f32: a query that is its own key has most of its
// weight there, so that dz is a small difference, which outputs and weights in bf16 would spoil.
//
// Saved: q and v as handles, out, and ℓ [B, H, N]; with normalize_keys k, n, and, if there are
// lengths, q within them. Time is that of full attention.
//
// Read next: ops/attention/full/full.h; shared_full.cpp.
#pragma once
