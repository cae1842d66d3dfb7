// Linear attention.
// A. Katharopoulos, A. Vyas, N. Pappas, F. Fleuret, "Transformers are RNNs: fast autoregressive
// transformers with linear attention", ICML 2020, arXiv 2006.16236, eqs. 4, 5 and 8 to 12.
//
// For long sequences, and for decoding in constant time and memory: the past is summed up in one
// matrix a head. Given up is sharpness: weights are products of features, which distinguish similar
// keys less well than a softmax does.
//
// Per batch item and head, with φ by the option `feature`:
//
//     o_i = Σ_j (φ(q_i) · φ(k_j)) v_j / (Σ_j φ(q_i) · φ(k_j) + 10⁻⁶)         j <= i when causal
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]
//
//     elu   φ(x) = elu(x) + 1: x + 1 where x > 0, otherwise e^x
//     relu  φ(x) = max(x, 0)
//     exp   φ(q) = e^(q − max q), φ(k) = e^k; in f32 keys above 88 overflow
//
// There is no temperature and no dropout of weights: no single weight is computed.
//
// Masks: causal; lengths of both sequences.
//
// Backward is that of the engine for scans: ops/attention/engines/scan/scan.h derives it.
//
// Decoding keeps S = Σ φ(k_j) v_jᵀ and z = Σ φ(k_j) in f64: 8 B H E (M + 1) bytes at any length.
//
// Saved: q, k, v and out as handles, and one number a query; if not causal also S and z. Time a
// position and head: 14 E M forward and backward, if causal plus 256 (E + M) for the pairs of its
// chunk.
//
// Read next: ops/attention/engines/scan/scan.h; linear.cpp.
#pragma once
