// Block-local attention: inside blocks, and between them.
// The dot-product form of block self-attention:
// T. Shen, T. Zhou, G. Long, J. Jiang, C. Zhang, "Bi-directional block self-attention for fast and
// memory-efficient sequence modeling", ICLR 2018, arXiv 1804.00857, section 3. What the paper has
// instead, a score for each feature and gates, is the mechanism biblosa.
//
// For sequences that consist of segments: inside a block every position sees every other one, and a
// pooled row of each block reaches all blocks. Time grows as N b + (N/b)², and memory is linear.
// Given up is direct attention to a single position of another block.
//
// Per batch item and head, with b the option `block`, t(i) = ⌊i/b⌋ the block of position i, J_t
// the positions of block t that lie within the length, and τ the option `temperature`:
//
//     Q_t, K_t, V_t = mean of q_j, k_j, v_j over j ∈ J_t; with pool=max their maximum, per feature
//     r_t = Σ_u d'_tu a'_tu V_u,          a'_t = softmax of τ Q_t · K_u over all blocks u
//     o_i = Σ_j d_ij a_ij v_j + r_{t(i)},   a_i = softmax of τ q_i · k_j over j ∈ J_{t(i)}
//
//     q, k [B, N, H, E]   v [B, N, H, M]   out [B, N, H, M]   d, d': the dropout masks
//
// Blocks begin at position 0; the last one may be short, and those beyond the length do not exist.
// With b >= N there is one block: full attention, plus the pool of v. With b = 1 it is v plus full
// attention.
//
// Masks: lengths, which apply to keys and queries. There is no causal form: a pooled row depends on
// the whole block.
//
// Backward is that of the ops that it is made of: the engine for pairs, once over the band of
// blocks and once over the pooled rows, and ops/blocks, which pools and adds r. Their pages derive
// it.
//
// Saved: the inputs as handles, the output of attention inside blocks [B, N, H, M] and its ℓ
// [B, H, N]; for each of n = ⌈N/b⌉ blocks the pooled rows, r and its ℓ, and with `max` the
// positions that the numbers come from. Time is 7 (E + M) for each of N b + n² pairs.
//
// Read next: ops/attention/engines/pairs/pairs.h, ops/blocks/blocks.h; block_local.cpp.
#pragma once
