// Longformer attention: a window, and positions that see everything and are seen by everything.
// I. Beltagy, M. E. Peters, A. Cohan, "Longformer: the long-document transformer", 2020, arXiv
// 2004.05150, section 3.1.
//
// For long documents in which a few positions, a class token or the words of a question, collect
// information and distribute it. Time and memory are linear in the length. Given up is direct
// attention between two ordinary positions that are further apart than the window reaches.
//
// Per batch item and head, with w the option `window`, s the option `dilation`, τ the option
// `temperature`, and G the global positions of the item:
//
//     J(i) = { i + s t : |t| <= w } ∪ G for i ∉ G,   all positions for i ∈ G
//     causal: j <= i besides, for both
//
//     o_i = Σ_{j ∈ J(i)} d_ij a_ij v_j,    a_i = softmax of τ q_i · k_j over J(i),      i ∉ G
//     o_i = Σ_{j ∈ J(i)} d_ij a_ij v'_j,   a_i = softmax of τ q'_i · k'_j over J(i),    i ∈ G
//
//     q, k [B, N, H, E]   v [B, N, H, M]   out [B, N, H, M]   d: the dropout mask
//     q', k', v': the inputs q_global, k_global and v_global, projections of their own, which a
//     layer starts as copies of those of q, k and v
//
// G is the first g positions, with g the option `global_tokens`; or the positions that the choice
// `global_mask` [B, N] names, if it is given: 1 is global, 0 is not. With global_tokens=0 the three
// further inputs may be missing; a mask that names a global position needs them. With w >= N, s = 1
// and g = 0 this is full attention of q, k, v; with G of all positions that of q', k', v'.
//
// Masks: causal; lengths, which apply to keys, queries and global positions.
//
// Backward is that of the engine for pairs, which is called twice;
// ops/attention/engines/pairs/pairs.h derives it. The ordinary queries have two parts under one
// softmax: the window, dilated by residue classes, and the global keys. The first g positions are
// excluded from the window; those of a given mask are gathered, and lists of tiles hide the ones
// that the window shows. The global queries, few rows, attend to everything in a call of their own,
// whose rows replace those of the first call.
//
// Decoding keeps all keys and values, and attends to J(i); of k' and v' it keeps the first g.
//
// Saved: the inputs as handles, the output of the first call [B, N, H, M], ℓ [B, H, N], and the
// same for the global queries. Time, with |G| = g, is 7 (E + M) for each of N (2 w + 1 + 2 g)
// pairs, about half of them when causal.
//
// Read next: ops/attention/engines/pairs/pairs.h; longformer.cpp.
#pragma once
