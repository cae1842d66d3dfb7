// Attention whose weights are scaled along rows and columns: passes of the engine for pairs with a
// potential for every query and every key.
// The iteration is that of R. Sinkhorn, "A relationship between arbitrary positive matrices and
// doubly stochastic matrices", Annals of Mathematical Statistics 35, 1964, in the log domain.
//
// Per batch item and head, over its n queries and s keys, with z_ij = τ q_i · k_j, v_j = 0
// initially, and T alternating half steps:
//
//     odd t:   u_i = −log Σ_j exp(z_ij + v_j)                    rows sum to 1
//     even t:  v_j = log(n/s) − log Σ_i exp(z_ij + u_i)          columns sum to n/s
//     a_ij = exp(z_ij + u_i + v_j) of the last u and v,   o_i = Σ_j d_ij a_ij x_j
//
//     q [B, N, H, E]   k [B, S, H, E]   values x [B, S, H, M]   out [B, N, H, M]
//
// with the dropout mask d.
//
// Row half steps are numbered r = 0, 1, …, R − 1 with R = ⌈T/2⌉, column half steps c = 0, …, C − 1
// with C = ⌊T/2⌋: u^0, v^0, u^1, v^1, … There is no v before v^0: it counts as 0.
//
// Forward. A column half step needs all rows of the half step before. So C passes over the tiles of
// scores compute u^r and v^r together: a block of queries keeps its scores against all keys until
// its u^r are known, and then adds exp(z + u^r) to the columns. The last pass is softmax attention
// with the bias v_j by key (pairs.h), which gives out and ℓ. T odd: u^C = −ℓ. T even: rows sum to
// exp(u + ℓ), by which out is multiplied.
//
// Backward. Let g_ij = d_ij do_i · x_j be the gradient of a_ij. Through the last u and v
//
//     dz_ij = a_ij g_ij,   du_i = Σ_j a_ij g_ij = do_i · o_i,   dv_j = Σ_i a_ij g_ij = x_j · dx_j
//
// where dx_j = Σ_i d_ij a_ij do_i is the gradient of the values. So both vectors are known without
// g. A half step is minus a log-sum-exp, whose derivative is a softmax: with w, the weights that it
// normalised, exp(z + u + v) of its own result and of its input,
//
//     u^r:  dz_ij −= w_ij du_i,          dv_j −= Σ_i w_ij du_i
//     v^c:  dz_ij −= w_ij dv_j s/n,      du_i −= Σ_j w_ij dv_j s/n
//
// These are applied from the last half step back. The vectors are needed before dz: those of v^c
// and u^c need the sums over columns of exp(z + u^{c+1} + v^c) and over rows of exp(z + u^c + v^c),
// which are equal but for a factor of the row. One pass for each pair of half steps computes both:
// a tile of keys keeps its weights against all queries until its dv are known, and then adds to the
// rows. The first of these passes computes dx.
//
// All weights are exp(z) times a number of the row and one of the column. With U and V the last
// potentials, that is a_ij exp(u_i − U_i) exp(v_j − V_j), and dz has all its terms in one pass:
//
//     dz_ij = a_ij (g_ij − Σ_t α_ti β_tj)
//     u^r:  α = exp(u^r − U) du^r,   β = exp(v^{r−1} − V)
//     v^c:  α = exp(u^c − U),        β = exp(v^c − V) dv^c s/n
//     dq_i = τ Σ_j dz_ij k_j,   dk_j = τ Σ_i dz_ij q_i
//
// The sum is a product of depth T beside that of depth M. Weights whose columns sum to n/s have row
// sums of at most n; weights whose rows sum to 1 have column sums of at most s times n/s. So a half
// step divides no weight by more than max(n, s). A factor spans several half steps and has no such
// bound: hundreds of them on nearly triangular scores, where convergence is slow, can leave the
// range of f32. Where a factor underflows, the weight of its half step does, too.
//
// With `detach` the v are constants: of all terms only that of the last u remains, the values'
// gradient is computed in the last pass, and there is no other pass. The same holds for T = 1.
//
// Products of N S E, with E = M: forward C + 2, backward C + 5 + T/E, and 5 + 1/E if there is one
// pass only; full attention has 2 and 5. Saved: q, k, x and out as handles, u [R, B, H, N] and
// v [C, B, H, S].
// Nothing of N × S is stored: on the CPU 64 rows or columns of scores.
//
// Queries and keys at or beyond their lengths do not exist; an item without any gives 0.
//
// Files, in the order of reading: this; potentials_cpu.cpp; potentials.cu.
#pragma once

#include "ops/attention/engines/pairs/pairs.h"

namespace weft {

template <class T>
struct Potentials {
  View<const T, 4> q, k, v;
  const i64* lengths = nullptr;
  const i64* query_lengths = nullptr;
  T temperature = 1;
  i64 iterations = 1;  // T
  bool detach = false;
  double dropout = 0;  // of the weights, as in pairs.h
  RandomKey random = {};

  constexpr i64 B() const { return q.size(0); }
  constexpr i64 N() const { return q.size(1); }
  constexpr i64 S() const { return k.size(1); }
  constexpr i64 H() const { return q.size(2); }
  constexpr i64 E() const { return q.size(3); }
  constexpr i64 M() const { return v.size(3); }
  constexpr i64 keys(i64 b) const { return length_of(lengths, b, S()); }
  constexpr i64 queries(i64 b) const { return length_of(query_lengths, b, N()); }
  constexpr i64 row_steps() const { return (iterations + 1) / 2; }
  constexpr i64 column_steps() const { return iterations / 2; }
  constexpr bool ends_with_rows() const { return iterations % 2 == 1; }
  // Whether no gradient flows through v.
  constexpr bool constant_columns() const { return detach || column_steps() == 0; }
  // The attention of forward's last pass, without potentials.
  constexpr Pairs<T> pairs() const {
    return {.q = q,
            .k = k,
            .v = v,
            .bias = {},
            .lengths = lengths,
            .query_lengths = query_lengths,
            .temperature = temperature,
            .dropout = dropout,
            .random = random,
            .columns = S()};
  }
};

// A term α_i β_j of the sum above: of the row half step `row`, or of the column half step `column`.
struct PotentialTerm {
  i64 row = -1, column = -1;

  constexpr bool of_row() const { return row >= 0; }
  // The u and v of the weights; -1: no v.
  constexpr i64 u() const { return of_row() ? row : column; }
  constexpr i64 v() const { return of_row() ? row - 1 : column; }
};

template <class T>
constexpr i64 term_count(const Potentials<T>& p) {
  return p.constant_columns() ? 1 : p.iterations;
}
template <class T>
constexpr PotentialTerm term_of(const Potentials<T>& p, i64 t) {
  if (p.constant_columns()) return {.row = p.row_steps() - 1};
  return t % 2 == 0 ? PotentialTerm{.row = t / 2} : PotentialTerm{.column = t / 2};
}

// One half step of u [R, B, H, N] or v [C, B, H, S]; below 0 there is none, and no data.
template <class T>
constexpr View<T, 3> step_of(const View<T, 4>& x, i64 step) {
  if (step < 0) return {};
  return {x.data + step * x.stride(0),
          {x.size(1), x.size(2), x.size(3)},
          {x.stride(1), x.stride(2), x.stride(3)}};
}

template <class Device, class T>
struct PotentialsKernels {
  // Writes all of out, u and v.
  static void forward(const Device&, const Potentials<T>&, View<T, 4> out, View<T, 4> u,
                      View<T, 4> v);
  // Writes all of dq, dk and dv, the gradient of the values.
  static void backward(const Device&, const Potentials<T>&, View<const T, 4> out,
                       View<const T, 4> u, View<const T, 4> v, View<const T, 4> dout, View<T, 4> dq,
                       View<T, 4> dk, View<T, 4> dv);
};

}  // namespace weft
