// The engine for scans: attention whose weights are products of features.
//
// A mechanism defines the features φ of a query and a key, and how the sum of the weights becomes
// the divisor. Per batch item and head, with J(i) the keys j <= i when causal, otherwise all:
//
//     a_ij = φq_i · φk_j                          D_i = Σ_{j ∈ J(i)} a_ij
//     n_i  = max(D_i + ε, n_min)                  o_i = Σ_{j ∈ J(i)} a_ij v_j / n_i
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]   φ: F numbers
//
// The sums over j are sums of products that do not depend on the query:
//
//     S_i = Σ_{j ∈ J(i)} φk_j v_jᵀ  [F, M]        z_i = Σ_{j ∈ J(i)} φk_j  [F]
//     o_i = S_iᵀ φq_i / n_i                       D_i = φq_i · z_i
//
// so that time is linear in the length. In the causal form S and z are running sums. They are
// carried from one chunk of 64 positions to the next, and within a chunk the pairs are computed one
// by one:
//
//     o_i n_i = Sᵀ φq_i + Σ_{j <= i in the chunk} a_ij v_j,      S before the chunk
//
// which makes everything products of small matrices.
//
// Backward. With do the gradient of out,
//
//     dN_i = do_i / n_i,   dD_i = −dN_i · o_i where D_i + ε > n_min, otherwise 0
//     da_ij = dN_i · v_j + dD_i
//     dφq_i = Σ_{j ∈ J(i)} da_ij φk_j = S_i dN_i + dD_i z_i
//     dφk_j = Σ_{i: j ∈ J(i)} da_ij φq_i = G_j v_j + g_j        dv_j = Σ_i a_ij dN_i = G_jᵀ φk_j
//     G_j = Σ_{i: j ∈ J(i)} φq_i dN_iᵀ  [F, M]                   g_j = Σ_i dD_i φq_i  [F]
//
// so dq follows from a scan like that of forward, dk and dv from one that begins at the end. Each
// recomputes its features. The sums are accumulated in f64 and rounded once for the products of a
// chunk: their error does not grow with the length.
//
// Levels. Exponential features are divided by the largest of them to prevent overflow: keys by e^c,
// and in the causal form by e^(c_i), where c_i is the largest among the keys that query i sees. It
// is monotonic in i. φk_j is divided by e^(c_j), the level of its own position. A constant w that
// is added to every feature of a key, after the division, adds w_i = w Σ_f φq_if to each weight of
// query i:
//
//     a_ij = e^(c_j − c_i) φq_i · φk_j + w_i,     e^(c_j − c_i) <= 1 for j <= i
//
// so a state is multiplied by e^(c − c') when the level rises from c to c', and its contribution to
// query i by e^(c − c_i); no factor exceeds 1. In backward G and g, whose level is that of the last
// position before them, are treated in the same way. The contribution of w_i is summed beside them,
// unscaled. Its gradient dw_i reaches every feature f of the query:
//
//     V_i = Σ_{j ∈ J(i)} v_j  [M] and the number of keys,     W_j = Σ_{i: j ∈ J(i)} w_i dN_i  [M]
//     o_i n_i += w_i V_i,   D_i += w_i |J(i)|                 dv_j += W_j
//     dw_i = Σ_{j ∈ J(i)} da_ij = dN_i · V_i + dD_i |J(i)|    dφq_if += w dw_i
//
// Levels are constants in backward. They are reported, and the caller can give them.
//
// Keys at and beyond their length, and queries at and beyond theirs, are in no sum; such queries
// give 0, and so do those of items without keys.
//
// bf16 is a type of storage. φ is computed in f32. Products of bf16 are summed in f32; S, z, G, g,
// D, n, the levels and the sums beside them are accumulators. Where a processor multiplies pairs of
// bf16, every operand of a product is rounded to bf16 once: φq and φk, with their factor by level
// where they have one; S and G; dN; and the weights a_ij and da_ij of a causal chunk. D sums the
// rounded a_ij, and dD is of the rounded dN: each has the errors of the numbers beside which it
// stands, and where one key is seen o is its value. out, dq, dk and dv are rounded at the end. The
// products with Ω are those of f32.
//
// Saved: q, k, v and out as handles, n [B, H, N], the maxima if there are any, and if not causal
// the sums in f64. Time a position and head: 4 F M forward and 10 F M backward, besides C (F + M)
// and 3 C (F + M) for the pairs of a causal chunk of C = 64, and the time of the features.
//
// Files, in the order of reading: features.h; levels.h; scan_cpu.cpp, on runtime/operands.h;
// attention.h, .cpp (the op, decoding); features.cuh; scan.cu; scan_mma.cuh (bf16).
#pragma once

#include "ops/attention/length.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/view.h"

namespace weft {

inline constexpr i64 scan_chunk = 64;  // positions

// φ of a query or key x [E] at position p, of an item whose period is m.
enum class Feature {
  elu,          // elu(x) + 1: x + 1 where x > 0, otherwise e^x
  relu,         // max(x, 0)
  exponential,  // queries: e^(x − max x); keys: e^x
  cosine,       // [r sin θ, r cos θ], r = max(x, 0), θ = π p / 2m: 2 E numbers
  // Of x' = scale · x and its products u = Ω x' with the rows of Ω [R, E], all minus a maximum:
  random_exponential,  // e^(u − ‖x'‖²/2 − max u) + w for queries; w beside the sums for keys
  random_hyperbolic,  // e^(±u − ‖x'‖²/2): 2 R numbers
  random_relu,        // max(u, 0) + w, without a maximum
};
constexpr bool is_random(Feature feature) { return feature >= Feature::random_exponential; }
// Whether a maximum is subtracted, and levels divide the sums.
constexpr bool has_levels(Feature feature) {
  return feature == Feature::random_exponential || feature == Feature::random_hyperbolic;
}
// F, of heads of E numbers and R rows of Ω.
constexpr i64 features_of(Feature feature, i64 E, i64 R) {
  const i64 each = is_random(feature) ? R : E;
  return feature == Feature::cosine || feature == Feature::random_hyperbolic ? 2 * each : each;
}
// Numbers of a head's sums: S [F, M], z [F]; with levels V [M], the number of keys and the level.
constexpr i64 sums_of(Feature feature, i64 F, i64 M) {
  return F * (M + 1) + (has_levels(feature) ? M + 2 : 0);
}

// Elements are `Stored`; everything but q, k and v is an accumulator. `lengths` and `query_lengths`
// hold B numbers or are null.
template <class Stored>
struct Scan {
  using T = Accumulator<Stored>;

  View<const Stored, 4> q, k, v;
  const i64* lengths = nullptr;
  const i64* query_lengths = nullptr;
  bool causal = false;
  Feature feature = Feature::elu;
  T added = 0, least = 0;  // ε and n_min
  i64 period = 0;          // m; 0: the longer of the item's two lengths
  i64 offset = 0;          // position of the first query and key
  View<const T, 2> omega = {};  // Ω [R, E], with contiguous rows; for random features
  T scale = 1, constant = 0;    // of random features: √τ and w
  // With levels: the maximum subtracted from u, for query i, [B, H, N], and c, [B, H, N], or [B, H,
  // 1] if not causal. Forward writes those that are not given.
  View<T, 3> query_max = {}, key_max = {};
  bool query_max_given = false, key_max_given = false;

  constexpr i64 B() const { return q.size(0); }
  constexpr i64 N() const { return q.size(1); }
  constexpr i64 S() const { return k.size(1); }
  constexpr i64 H() const { return q.size(2); }
  constexpr i64 E() const { return q.size(3); }
  constexpr i64 M() const { return v.size(3); }
  constexpr i64 R() const { return omega.size(0); }
  constexpr i64 F() const { return features_of(feature, E(), R()); }
  constexpr i64 sums() const { return sums_of(feature, F(), M()); }
  constexpr bool levels() const { return has_levels(feature); }
  // Queries that see a key.
  constexpr i64 queries(i64 b) const {
    return length_of(lengths, b, S()) > 0 ? length_of(query_lengths, b, N()) : 0;
  }
  // Keys that some query sees.
  constexpr i64 keys(i64 b) const {
    const i64 all = length_of(lengths, b, S());
    return causal && queries(b) < all ? queries(b) : all;
  }
  // π / 2m
  constexpr double angle(i64 b) const {
    const i64 k = length_of(lengths, b, S()), q = queries(b);
    const i64 m = period > 0 ? period : q > k ? q : k;
    return 1.57079632679489661923 / double(m > 0 ? m : 1);
  }
  // n(D), and dn/dD. NaN is propagated.
  constexpr T divisor(T D) const { return D + added <= least ? least : D + added; }
  constexpr T slope(T n) const { return n > least ? T(1) : T(0); }
};

template <class Device, class S>
struct ScanKernels {
  using T = Accumulator<S>;
  // Writes all of out and divisors [B, H, N]; the divisor of a query beyond its length is 0. `sums`
  // [B, H, sums()]: if not causal, those over all keys are written there. In the causal form it may
  // have no data; otherwise the scan continues from it, and leaves the final sums there.
  static void forward(const Device&, const Scan<S>&, View<double, 3> sums, View<S, 4> out,
                      View<T, 3> divisors);

  // All of dq, dk and dv is written. `sums` as forward wrote them; not read in the causal form.
  static void backward(const Device&, const Scan<S>&, View<const double, 3> sums,
                       View<const S, 4> out, View<const T, 3> divisors, View<const S, 4> dout,
                       View<S, 4> dq, View<S, 4> dk, View<S, 4> dv);
};

}  // namespace weft
