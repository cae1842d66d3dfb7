// BigBird attention: each block of queries sees the blocks beside it, the first and the last one,
// and a few at random.
// M. Zaheer et al., "Big Bird: Transformers for longer sequences", NeurIPS 2020, arXiv 2007.14062,
// sections 2 and 3 and appendix D (the block form, with global blocks of the sequence itself).
//
// For long texts that are read in both directions. Time and memory are linear in the length, and
// the first and last block connect any two positions within two layers. Given up is direct
// attention to most of the sequence: what is neither near nor drawn is reached through those two
// blocks.
//
// Blocks of b positions from the start, b the option `block`; an item of length L has n = ⌈L/b⌉, of
// which the last may be short. Per batch item and head, with r the option `random`:
//
//     U(0) = U(n−1) = { 0, …, n−1 }
//     U(t) = { 0, t−1, t, t+1, n−1 } ∪ random_blocks[h, t−1]           0 < t < n−1
//
//     o_i = Σ_j d_ij a_ij v_j over j < L with ⌊j/b⌋ ∈ U(⌊i/b⌋),   a_i = softmax of τ q_i · k_j
//
//     q, k [B, N, H, E]   v [B, N, H, M]   out [B, N, H, M]   τ: the option `temperature`
//
// d is the dropout mask. U is a set: a block that is named twice, or seen anyway, counts once. With
// up to three blocks this is full attention.
//
// Random blocks. For block t the r numbers are drawn without repetition from those that it does not
// see anyway; if there are fewer than r, all are taken, padded with −1. They are a function of the
// seed of the layer (AttentionCall::seed), the layer, the head, t and n: so an item has those of
// its own length, independent of the other items of the batch. The seed is not that of a training
// step: training, evaluation and a resumed run see the same blocks, and a checkpoint holds the
// seed. They are reported, and can be given, as `random_blocks` [H, n−2, r] of n = ⌈N/b⌉, or, for
// items of different lengths, [B, H, n−2, r]; numbers below 0, or not below the item's own n, name
// none.
//
// Masks: lengths, which apply to keys and queries. No causal form.
//
// Backward is that of the engine for pairs with one list of tiles,
// ops/attention/engines/pairs/pairs.h, which derives it. The list is built for each call, on the
// device of the inputs, where lengths may be: nothing waits for the host, and nothing is kept
// between calls. A block of a multiple of 64 is whole tiles; with others most tiles are partial,
// and have bit tables.
//
// Saved: q, k, v and out as handles, ℓ [B, H, N], and the lists: 24 bytes a tile, if b = 64 of up
// to (7 + r) N / 64 tiles a head, and with lengths these for each item. Time 7 (E + M) for each
// pair, of which a head has N b (5 + r) + 2 N b.
//
// Read next: blocks.h (what is drawn, and what a block sees); bigbird.cpp;
// ops/attention/engines/pairs/block_lists.h.
#pragma once
