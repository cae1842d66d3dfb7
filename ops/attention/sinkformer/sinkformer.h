// Sinkformer: attention whose weights are normalised along rows and columns in turn.
// M. Sander, P. Ablin, M. Blondel, G. Peyré, "Sinkformers: transformers with doubly stochastic
// attention", AISTATS 2022, arXiv 2110.11773, section 3.
//
// A softmax makes the weights of each query sum to one; a few keys may get most of all queries'
// weight. Here every key gets the same total weight, too, so that none is ignored and none
// dominates. Given up are the causal form, and with it decoding: the weights of a query depend on
// all other queries. Time grows with the number of half steps.
//
// Per batch item and head, over the item's n queries and s keys, with τ the option `temperature`
// and z_ij = τ q_i · k_j; v = 0 initially, and then `iterations` alternating half steps,
//
//     odd:   u_i = −log Σ_j exp(z_ij + v_j)                      rows sum to 1
//     even:  v_j = log(n/s) − log Σ_i exp(z_ij + u_i)            columns sum to n/s
//     o_i = Σ_j d_ij exp(z_ij + u_i + v_j) x_j
//
//     q [B, N, H, E]   k [B, S, H, E]   values x [B, S, H, M]   out [B, N, H, M]
//
// with the dropout mask d.
//
// One half step is softmax attention. After an odd number of them rows sum to one exactly. With
// many of them columns also sum to n/s, and this limit does not change when a constant is added to
// a row or a column of z. In self-attention n/s is 1. The paper's text model holds v constant in
// backward, as `detach_columns` does; its vision model, and the default, differentiate through it.
//
// Masks: lengths of both sequences. A query or a key at or beyond them does not exist: it is in no
// sum, and the output of such a query, and of any without keys, is 0.
//
// Backward is that of the engine for pairs with potentials:
// ops/attention/engines/pairs/potentials.h derives it. Nothing of N × S is stored.
//
// Saved: q, k, values and out as handles, and u and v: 4 B H (N ⌈T/2⌉ + S ⌊T/2⌋) bytes for T half
// steps. Time a head: 2 N S E times ⌊T/2⌋ + 2 forward and ⌊T/2⌋ + 5 backward, where E = M; 5
// backward with detach_columns=1. Full attention has 2 and 5.
//
// Read next: ops/attention/engines/pairs/potentials.h; sinkformer.cpp.
#pragma once
