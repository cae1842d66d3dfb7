// Sparse attention in the two patterns of the Sparse Transformer.
// R. Child, S. Gray, A. Radford, I. Sutskever, "Generating long sequences with sparse
// transformers", 2019, arXiv 1904.10509, section 4.
//
// For long sequences whose distant past matters: every position reaches every earlier one through
// two layers, and with a stride of about √N time grows with N √N. Given up is direct attention to
// most keys of the distant past.
//
// Causal only. Per batch item and head, with l the option `stride` and c the option `summary`:
//
//     strided   one(i) = { i − l < j <= i }              two(i) = { j <= i, (i − j) mod l = 0 }
//     fixed     one(i) = { ⌊j/l⌋ = ⌊i/l⌋, j <= i }       two(i) = { j <= i, j mod l >= l − c }
//
//     combine=merged   J(i) = one(i) ∪ two(i) in every head
//     combine=heads    J(i) = one(i) in even heads, two(i) in odd ones
//
//     o_i = Σ_{j ∈ J(i)} d_ij a_ij v_j,   a_i = softmax of τ q_i · k_j over J(i)
//
//     q, k [B, N, H, E]   v [B, N, H, M]   out [B, N, H, M]   τ: the option `temperature`
//
// d is the dropout mask. A query that sees nothing gives 0: in the odd heads of pattern=fixed,
// combine=heads, the first l − c positions. With summary=0 c is min(32, l); a given c is at most l,
// and `strided` has none.
//
// Masks: lengths, which apply to keys and queries.
//
// Backward is that of the engine for pairs, ops/attention/engines/pairs/pairs.h, which derives it.
// Parts are in closed form, each pair in one of them. strided: a window, and, among the positions
// of each residue mod l as a sequence of its own, those before the query. fixed: a block up to the
// query, and the summary keys of earlier blocks, gathered into c keys a block.
//
// Decoding keeps all keys and values, and attends to J(i).
//
// Saved: q, k, v and out as handles, ℓ [B, H, N], for fixed the gathered keys and values, and for
// combine=heads the outputs of the even and of the odd heads. Time 7 (E + M) for each pair:
// N l + N² / 2l of them when strided, N l / 2 + c N² / 2l when fixed, half as many for
// combine=heads.
//
// Read next: ops/attention/engines/pairs/pairs.h; sparse.cpp.
#pragma once
