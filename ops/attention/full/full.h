// Full softmax attention.
// A. Vaswani et al., "Attention is all you need", NeurIPS 2017, arXiv 1706.03762, eq. 1.
//
// Every query attends to every key, so that nothing is out of reach; time is quadratic in the
// length, memory is linear. What other mechanisms give up is measured against this one.
//
// Per batch item and head, query i, key j (τ: option `temperature`, 1/√E unless given):
//
//     z_ij = τ q_i · k_j + bias_ij                       −∞ where j is masked
//     ℓ_i  = log Σ_j exp z_ij,   a_ij = exp(z_ij − ℓ_i)
//     o_i  = Σ_j d_ij a_ij v_j                           d: the dropout mask, 0 or 1/(1 − rate)
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]   bias [B|1, H|1, N, S]
//
// Masks: causal (j <= i), lengths (j < lengths_b), query_lengths, bias; and a user-defined pattern
// (ops/attention/pattern.h), whose hidden tiles take no time. A query without any key, and one at
// or beyond its length, gives 0 and gets no gradient. A bias that hides a key is −∞: in f32 a row
// whose keys all have a finite bias of −1e5 or less has no exact gradient, since ℓ, of that size,
// cannot represent the logarithm of the sum beside it.
//
// Backward is that of the engine for pairs, of which a call is one part that shows all keys, or
// those up to the query: ops/attention/engines/pairs/pairs.h derives it.
//
// Saved: q, k, v, bias and out as handles, and ℓ [B, H, N]; nothing of size N × S but dbias, if a
// bias is given and wants it. Time 2 N S (E + M) forward and 2.5 times that backward (half of both
// when causal); bytes saved 4 B H N.
//
// Read next: ops/attention/engines/pairs/pairs.h.
#pragma once
