// cosFormer: linear attention whose weights fade with distance.
// Z. Qin et al., "cosFormer: rethinking softmax in attention", ICLR 2022, arXiv 2202.08791, eqs. 10
// to 14.
//
// For long sequences in which near positions matter more: weights fall with the cosine of the
// distance, to 0 at the distance m, and time is linear in the length. Given up is sharpness, since
// no exponential separates large scores from small ones, and a length that is not known before.
//
// Per batch item and head, with r(x) = max(x, 0):
//
//     a_ij = r(q_i) · r(k_j) cos(π (i − j) / 2m)                             j <= i when causal
//     o_i  = Σ_j a_ij v_j / max(Σ_j a_ij, 10⁻⁶)
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]
//
// m is the option `max_length`, or, if that is 0, the longer of the item's two lengths. Longer
// sequences than `max_length` are refused. Both sequences begin at position 0. Since cos(α − β) =
// sin α sin β + cos α cos β, the weights are products of features, and no matrix of them is
// computed:
//
//     φ(x) at position p = [r(x) sin θ_p, r(x) cos θ_p],   θ_p = π p / 2m     2 E numbers
//
// There is no temperature and no dropout of weights. The divisor has no gradient below 10⁻⁶.
//
// Masks: causal; lengths of both sequences.
//
// Backward is that of the engine for scans: ops/attention/engines/scan/scan.h derives it.
//
// Decoding keeps sums in f64: 16 B H E (M + 1) bytes at any length. It needs max_length: with m by
// length the sums would change with every position.
//
// Saved: q, k, v and out as handles, and one number a query; if not causal also the sums. Time a
// position and head: 28 E M forward and backward, if causal plus 256 (2 E + M).
//
// Read next: ops/attention/engines/scan/scan.h; cosformer.cpp.
#pragma once
