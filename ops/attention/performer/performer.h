// Performer: softmax attention by random features (FAVOR+).
// K. Choromanski et al., "Rethinking attention with Performers", ICLR 2021, arXiv 2009.14794, eqs.
// 5 to 7 and 9, lemma 1 and section 2.4.
//
// For long sequences if the weights of a softmax are wanted: their expectation is what full
// attention gives, and the error falls as 1/√r with the number r of features. Given up is
// exactness: large scores, which a softmax sharpens, are the ones that few features estimate badly.
//
// Per batch item and head, with φ by the option `kernel`, x' = √τ x, u = Ω x' and products φq · φk
// whose mean over draws of Ω is, up to a common factor, e^(τ q·k) (not with the kernel relu):
//
//     o_i = Σ_j (φq_i · φk_j) v_j / Σ_j φq_i · φk_j                           j <= i when causal
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   omega [r, E]   out [B, N, H, M]
//
//     softmax     φq_i = e^(u − ‖q'_i‖²/2 − max_f u_f) + 10⁻⁴
//                 φk_j = e^(u − ‖k'_j‖²/2 − c) + 10⁻⁴
//     hyperbolic  φ(x) = [e^(u − ‖x'‖²/2), e^(−u − ‖x'‖²/2)]             2 r features
//     relu        φ(x) = max(u, 0) + 10⁻³                                another kernel
//
// A common factor of the features, like r^(−1/2), cancels, and nothing is added to the divisor. τ
// is the option `temperature`, by default 1/√E; r is the option `features`, or max(1, ⌊E ln E⌋) if
// that is 0.
//
// The largest u are subtracted to prevent overflow. That of the query cancels except for the 10⁻⁴;
// c is the largest u of the keys that query i sees, so it is one for all without `causal` and
// monotonic in i otherwise. When it rises the sums are rescaled, and the 10⁻⁴ of the keys is summed
// separately: the last causal row is that of the full form, and nothing depends on the future.
// hyperbolic subtracts the largest exponents, which cancel, and adds nothing: where all products of
// a query's features and the keys' underflow, its row is 0/0. In f32 with E = 64 that begins with
// numbers q' and k' of deviation 10; the softmax form has no such limit.
//
// Both maxima are reported as `query_max` [B, H, N] and `key_max` [B, H, N], or [B, H, 1] without
// `causal`, and can be given. With relu they are 0 and have no effect.
//
// Ω is drawn, one for all batch items and heads, without a gradient: in blocks of E rows that are
// orthogonal to each other, each with the length of a vector of E normal numbers (orthogonal=0: of
// normal numbers). In training a layer redraws it every `redraw` steps; checkpoints hold it, and
// evaluation and decoding use what training used last.
//
// Masks: causal; lengths of both sequences. There is no dropout of weights.
//
// Backward is that of the engine for scans, ops/attention/engines/scan/scan.h, which derives it;
// random_features.h there derives the gradient of the features. Both maxima are constants.
//
// Decoding keeps S = Σ φ(k_j) v_jᵀ and z = Σ φ(k_j), divided by e^c, beside Σ v_j, in f64:
// 8 B H (F + 1) (M + 1) bytes and a number at any length, F features.
//
// Saved: q, k, v and out as handles, Ω, and three numbers a query (two without `causal`); if not
// causal also the sums. Time a position and head: 14 F M for the sums and 14 r E for u and its
// gradient; if causal 16 r E, and 256 (F + M) for the pairs of its chunk.
//
// Read next: ops/attention/engines/scan/scan.h; ops/attention/engines/scan/random_features.h;
// performer.cpp.
#pragma once
