// SegTree attention: positions and the nodes of a binary tree over them attend to each other along
// the edges of the tree.
// Z. Ye et al., "SegTree Transformer: iterative refinement of hierarchical features", ICLR 2019
// workshop on representation learning on graphs and manifolds; this implementation follows its
// code, github.com/yzh119/segtree-transformer-v0.
//
// For long sequences that are read whole or written from left to right: every position reaches
// every other one over a node that summarises it, in N log N time, and near positions are seen in
// more detail than distant ones. Given up is direct attention to single distant positions. Its rows
// are nodes and not positions alone: a model would carry those of the whole tree from layer to
// layer.
//
// The tree over n leaves. Level 0 are the leaves, and level l has ⌈n/2^l⌉ nodes, up to the root,
// which is alone in level L = ⌈log₂ n⌉. Node u of level l covers the leaves
// u 2^l … (u + 1) 2^l − 1, as far as they exist. Rows are the leaves, then level after level from
// left to right:
//
//     T = n + ⌈n/2⌉ + ⌈n/4⌉ + … + 1
//
// Edges, with their types, into
//
//     every node           itself                                                type 0
//     a node of level l>0  each leaf under it                                    type 3l
//     leaf i, l = 0 … L,   node v − 1 of level l, if v >= 1, or instead of it    type 3l + 1
//     with v = ⌊i/2^l⌋     its left child, if bit l − 1 of i is 0
//                          node v + 1 of level l, or instead of it its right     type 3l + 2
//                          child, if bit l − 1 of i is 1; where that exists
//
// Level 0 has no children, and the node is taken. The child that is left out is covered by lower
// levels, in parts. So the edges from the left into leaf i, from level 0 on, lead to leaf i − 1,
// then further and further left, and cover the leaves 0 … i − 1, each once; those from the right
// cover i + 1 … n − 1. `causal` omits the right edges. (The released code has a right edge only if
// i + 2^l < n: unless n is 2^k or 3 · 2^k, some leaves then miss the last ones.)
//
// Per batch item and head, over the edges e = (i, j, t) into node i, with τ the option
// `temperature`:
//
//     z_e = τ q_i · (k_j + relative_t)
//     o_i = Σ_e d_e a_e v_j,   a = softmax of z over the edges into i,   d: the dropout mask
//
//     q, k [B, T, H, E]   v [B, T, H, M]   out [B, T, H, M]   relative [3·levels, E], for all heads
//
// and levels = L + 1; `relative` may have more rows than that, which are unused. The mask has a row
// for each node, and a column for the rank of an edge in the list: itself, then the leaves, or the
// left edges from level 0 on, and the right ones.
//
// Masks: causal, lengths. Lengths count leaves. An item has the tree of its own length, whose rows
// come first; later rows give 0 and get no gradient. Causal means here: a node's future begins
// after the last leaf that it covers. No decoding: a further leaf moves all other rows.
//
// Backward is that of the engine for lists, ops/attention/engines/lists/lists.h, which derives it.
// The lists are built for each call, from n alone and in closed form, on the device of the inputs,
// where lengths may be: one for all items and heads, or with lengths one for each item. The edges
// into a node of level l > 0 have two types, so that q · relative is computed twice there.
//
// Saved: q, k, v, relative as handles, ℓ [B, H, T], and the lists, some 12 bytes an edge and 8 a
// run. Time is 2 (E + M) operations an edge forward, and some 2.5 times that backward; there are
// about 3 n log₂ n edges, if causal 2 n log₂ n.
//
// Read next: tree.h; segtree.cpp; segtree_cpu.cpp, segtree.cu.
#pragma once
