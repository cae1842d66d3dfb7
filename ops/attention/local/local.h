// Local attention: each query sees the keys near it.
// As in fast-transformers (Idiap), attention/local_attention.py; the window goes back to M.-T.
// Luong, H. Pham, C. Manning, "Effective approaches to attention-based neural machine translation",
// EMNLP 2015, arXiv 1508.04025, section 3.2.
//
// For text and pictures, where most of what matters is near. Time and memory are linear in the
// length. Given up is direct attention to positions outside of the window: they reach an output
// only through further layers.
//
// Per batch item and head, with c the option `context` and τ the option `temperature`:
//
//     J(i) = { j : i − ⌊c/2⌋ <= j <= i + ⌈c/2⌉ − 1 },   causal: j <= i besides
//     o_i  = Σ_{j ∈ J(i)} d_ij a_ij v_j,   a_i = softmax of τ q_i · k_j over J(i)
//
//     q, k [B, N, H, E]   v [B, N, H, M]   out [B, N, H, M]   d: the dropout mask
//
// So c keys without the causal mask, ⌊c/2⌋ + 1 with it; fewer at the ends of the sequence. c = 1
// gives v, and c >= 2 N full attention.
//
// Masks: causal, lengths, which apply to keys and queries.
//
// Backward is that of the engine for pairs, of which a call is one part, a window:
// ops/attention/engines/pairs/pairs.h derives it.
//
// Decoding keeps the last ⌊c/2⌋ + 1 keys and values, whatever the length.
//
// Saved: q, k, v and out as handles, and ℓ [B, H, N]. Time 2 N c (E + M) forward and 2.5 times that
// backward, half of both when causal; bytes saved 4 B H N.
//
// Read next: ops/attention/engines/pairs/pairs.h; local.cpp; ops/attention/README.md, which adds
// this mechanism step by step.
#pragma once
