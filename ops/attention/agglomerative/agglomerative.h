// Agglomerative attention.
// M. Spellings, "Agglomerative attention", 2019, arXiv 1907.06607, "Methods" (its equations are not
// numbered). The clip of n and the dropout are those of the author's code.
//
// For long sequences: every position belongs softly to m classes (the head axis: H = m), and a
// query reads, for each class, the mean of that class over the references, weighted by how much it
// belongs to the class itself. Time and memory are linear in the length. Given up are scores of
// single pairs: two queries of the same class read the same mean.
//
// Per batch item, query i, reference t, class k:
//
//     cq_i = softmax_k zq_i        ck_t = softmax_k zk_t, 0 at and past the length
//     S_ik = Σ_t ck_tk             U_ik = Σ_t ck_tk y_tk       t <= i when causal, otherwise all t
//     n_ik = max(S_ik, 10⁻³)       a_ik = U_ik / n_ik
//     out_ik = d_ik ⊙ cq_ik a_ik                               d: the dropout mask over [N, H·M]
//
//     zq [B, N, H]   zk [B, S, H]   y [B, S, H, M]   out [B, N, H, M]
//
// zq, zk are logits and y values, projected by the layer around; the matrix that mixes the classes
// of out is the layer's too. The author's code can tie the weights of zk to those of zq, which by
// its default it does not; no layer here does.
//
// Masks: causal; lengths of both sequences. A query at or beyond its length gives 0 and gets no
// gradient; one that sees no reference gives 0 (U = 0, n = 10⁻³).
//
// Backward. Every reference t is in the sums S_i and U_i of the queries that see it, and so the
// gradients of these sums are summed over those queries; the clip has no gradient below 10⁻³. With
// dp = d ⊙ dout, and w_ik = cq_ik / n_ik:
//
//     dcq_ik = dp_ik · a_ik              dU_ik = w_ik dp_ik
//     dn_ik  = −w_ik dcq_ik where S_ik >= 10⁻³, otherwise 0
//     G_tk = Σ_i dU_ik,  g_tk = Σ_i dn_ik                      i >= t when causal, otherwise all i
//     dy_tk = ck_tk G_tk                 dck_tk = y_tk · G_tk + g_tk
//     dzq_ik = cq_ik (dcq_ik − Σ_l cq_il dcq_il)               dzk from ck and dck likewise
//
// So forward is one scan over (S, U) and backward one over (g, G) in the other direction, both of
// width H (1 + M): time and memory linear in N. All sums are accumulated in f64 and rounded to f32
// once, at the end. Chunks of positions are scanned in parallel: their own sums, the sums of these
// in order, then the outputs.
//
// Decoding keeps only (S, U): 8 B H (1 + M) bytes at any length.
//
// Saved: zq, zk and y as handles, and (S, U) in f64: when causal before each chunk, 8 H (1 + M) /
// 128 bytes a position, otherwise over all references, 8 H (1 + M) bytes an item. Backward scans a
// chunk again from there, which costs less than to write and read a, whose width is that of out,
// and needs no division by cq, as deriving a from out would.
//
// Time for the N queries and S references together: (N + S) H (M + 5) operations forward, (N + S) H
// (4 M + 8) backward, and 2 (N + S) H exponentials.
//
// Read next: agglomerative.cpp; agglomerative_cpu.cpp; chunk.h and strip.h.
#pragma once

#include "ops/attention/length.h"
#include "ops/dropout/mask.h"
#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

inline constexpr double least_class_mass = 1e-3;
inline constexpr i64 agglomerative_chunk = 128;  // positions of one task of the scan
inline constexpr i64 agglomerative_wave = 16;    // chunks scanned in parallel

// n(S), and dn/dS. NaN is propagated.
constexpr double clipped_mass(double S) { return S < least_class_mass ? least_class_mass : S; }
constexpr double clipped_mass_slope(double S) { return S < least_class_mass ? 0 : 1; }

// The call in kernels. Last axes have stride 1. `lengths` and `query_lengths` hold B numbers or are
// null.
template <class T>
struct Agglomerative {
  View<const T, 3> zq, zk;
  View<const T, 4> y;
  const i64* lengths = nullptr;
  const i64* query_lengths = nullptr;
  bool causal = false;
  double dropout = 0;
  RandomKey random = {};

  constexpr i64 B() const { return zq.size(0); }
  constexpr i64 N() const { return zq.size(1); }
  constexpr i64 S() const { return zk.size(1); }
  constexpr i64 H() const { return zq.size(2); }
  constexpr i64 M() const { return y.size(3); }
  constexpr i64 width() const { return H() * (1 + M()); }  // of (S, U) and of (g, G)
  constexpr i64 keys(i64 b) const { return length_of(lengths, b, S()); }
  constexpr i64 queries(i64 b) const { return length_of(query_lengths, b, N()); }
  DropoutMask mask() const { return DropoutMask(random, dropout, H() * M(), N()); }
};

// The number of chunks for `positions`, and of rows of sums that a call saves.
constexpr i64 agglomerative_chunks(i64 positions) {
  return (positions + agglomerative_chunk - 1) / agglomerative_chunk;
}
constexpr i64 agglomerative_rows(bool causal, i64 positions) {
  return causal ? agglomerative_chunks(positions) : 1;
}

template <class Device, class T>
struct AgglomerativeKernels {
  // Writes out, row-major, and sums [B, rows, width]: (S, U) before each chunk, or over all
  // references.
  static void forward(const Device&, const Agglomerative<T>&, View<double, 3> sums, View<T, 4> out);

  // The causal outputs of positions that follow those summed in sums [B, width], at most a chunk of
  // them; leaves the sums after them.
  static void advance(const Device&, const Agglomerative<T>&, View<double, 2> sums, View<T, 4> out);

  // All of dzq, dzk and dy is written; their last axes, and that of dout, have stride 1. With
  // dropout dout is row-major.
  static void backward(const Device&, const Agglomerative<T>&, View<const double, 3> sums,
                       View<const T, 4> dout, View<T, 3> dzq, View<T, 3> dzk, View<T, 4> dy);
};

}  // namespace weft
