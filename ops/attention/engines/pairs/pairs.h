// The engine for pairs: softmax attention over the pairs (query, key) that a pattern shows.
// Streaming over keys as in M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax",
// arXiv 1805.02867, and T. Dao et al., "FlashAttention", NeurIPS 2022, arXiv 2205.14135,
// algorithms 1 and 4.
//
// A call is a list of parts under one softmax. Part p has keys and values of its own (or those of
// another part) and shows query i the keys J_p(i); no pair may be in two parts. Per batch item and
// head, with the temperature τ (of a mechanism: its option `temperature`, 1/√E unless given):
//
//     z_ij = τ q_i · k_j + bias_ij                       j ∈ J_p(i), over all parts p
//     ℓ_i  = log Σ_p Σ_j exp z_ij,   a_ij = exp(z_ij − ℓ_i)
//     o_i  = Σ_p Σ_j d_ij a_ij v_j                       d: the dropout mask, 0 or 1/(1 − rate)
//
//     q [B, N, H, E]   k [B, S, H, E]   v [B, S, H, M]   out [B, N, H, M]   bias [B|1, H|1, N, S]
//
// A bias may be by distance: bias_ij = table[h, origin + j − i] of a table [H|1, D], which is
// viewed as N × S numbers with opposite strides. Given scores have no products: heads of width E =
// 0 and a bias.
//
// Lengths hide keys and queries; a query without any key, and one at or beyond its length, gives 0
// and gets no gradient.
//
// Patterns. A band (band.h) is an interval of keys for every query, in closed form; lists of tiles
// (tile_lists.h) are data. With `classes` = l > 1 the sequences of a part are the residue classes
// c, c + l, c + 2l, … of queries and of keys, each by itself, and band and lists count along a
// class: so dilation and strides are windows. Keys that are picked from the sequence are gathered
// into a k and v of their own before. Keys before `first_key`, a position of the whole sequence,
// are excluded from a band, because another part has them.
//
// Forward. Nothing of size N × S is stored. For a block of queries the running maximum μ, sum s and
// output o are updated tile by tile; when a tile raises the maximum to μ',
//
//     s ← s exp(μ − μ') + Σ_tile exp(z − μ'),   o ← o exp(μ − μ') + Σ_tile d exp(z − μ') v
//     at the end o ← o / s,  ℓ = μ + log s
//
// A further part continues from the result so far: μ = ℓ, s = 1, o = out. So parts may have
// different blocks of queries, and each is one pass. The results of several ranges of keys are
// merged in the same way: if there are few queries (decoding), the keys are split into ranges that
// are processed in parallel.
//
// Backward. With do_i the gradient of o_i and da_ij = d_ij do_i · v_j the gradient of a_ij, the
// derivative of the softmax, ∂a_ij/∂z_ij' = a_ij (1{j = j'} − a_ij'), gives
//
//     dz_ij = a_ij (da_ij − δ_i)
//     δ_i   = Σ_p Σ_j a_ij da_ij = Σ_p Σ_j a_ij d_ij do_i · v_j = do_i · o_i
//
// where the sum in δ runs over all parts: it is one number a query, known from out before any pair
// is visited, with dropout too. Then
//
//     dv_j = Σ_i d_ij a_ij do_i        dbias = dz, summed over the axes that bias repeats on,
//                                      and along j − i where the bias goes by distance
//     dq_i = τ Σ_p Σ_j dz_ij k_j       dk_j = τ Σ_i dz_ij q_i
//
// and a_ij = exp(z_ij − ℓ_i) is recomputed from the joint ℓ, tile by tile; the dropout mask is
// drawn again. Each part adds to dq, and to the dk and dv of its keys.
//
// ℓ and the recomputed z are rounded, so that in f32 the recomputed weight has a relative error of
// some 2⁻²⁴ |z|: gradients are exact to three digits at |z| = 10⁴, and to none from 10⁷ on. A
// weight of a hidden pair is 0 in a tile that has visible ones, and multiplies: a NaN or an
// infinity of v reaches the queries of its tile that do not see it.
//
// bf16 is a type of storage. Products of bf16 are summed in f32; z, μ, s, ℓ, δ, da and the bias are
// f32. Where a processor multiplies pairs of bf16, the weights d a (of the sum in o: d exp(z − μ))
// and dz are rounded to bf16 before their products, s is the sum of the weights before that, and o,
// dq, dk and dv are rounded at the end; else the products are those of f32. Kernels of bf16 are
// given one part: `before` has no data and nothing is added to.
//
// Saved: q, k, v, bias and out as handles, and ℓ [B, H, N]. With P pairs time is 2 P (E + M)
// forward and 2.5 times that backward; bytes saved 4 B H N.
//
// Files, in the order of reading: band.h; pairs_tile_cpu.h, pairs_cpu.cpp and
// pairs_backward_cpu.cpp, on runtime/operands.h; narrow.h (heads of eight); few_queries.h
// (decoding); tile_lists.h, block_lists.h and tile_list_tensors.h; attention.h, .cpp (the op);
// pairs_tile.cuh, pairs.cu, gradient_tile.cuh, pairs_backward.cu, pairs_narrow.cu (narrow heads),
// pairs_mma.cu and pairs_mma_backward.cu (bf16); potentials.h (scales of rows and columns);
// distances.h (rows and factors by distance).
#pragma once

#include "ops/attention/engines/pairs/band.h"
#include "ops/attention/engines/pairs/tile_lists.h"
#include "ops/attention/length.h"
#include "ops/dropout/mask.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/view.h"

namespace weft {

// One part in kernels, of elements `Stored`; everything but q, k and v is an accumulator. `lengths`
// and `query_lengths` hold B numbers or are null; a bias without data means none; its broadcast
// axes have stride 0. The weight of query i and key j is dropped by row (b H + h) N + i and column
// first_column + j of a mask with `columns` columns, where i counts all queries and j along the
// class; first_column is a multiple of 64.
template <class Stored>
struct Pairs {
  using T = Accumulator<Stored>;

  View<const Stored, 4> q, k, v;
  View<const T, 4> bias;
  const i64* lengths = nullptr;
  const i64* query_lengths = nullptr;
  T temperature = 1;  // above 0
  Band band = {};
  TileLists lists = {};
  i64 classes = 1, first_key = 0;
  double dropout = 0;
  RandomKey random = {};
  i64 first_column = 0, columns = 0;
  i64 residue = 0;      // of_class(): which class this is
  i64 all_queries = 0;  // of_class(): N of all classes

  constexpr i64 B() const { return q.size(0); }
  constexpr i64 N() const { return q.size(1); }
  constexpr i64 S() const { return k.size(1); }
  constexpr i64 H() const { return q.size(2); }
  constexpr i64 E() const { return q.size(3); }
  constexpr i64 M() const { return v.size(3); }
  // Of the class, if this is one.
  constexpr i64 keys(i64 b) const { return std::min(S(), count_in_class(length(lengths, b))); }
  constexpr i64 queries(i64 b) const {
    return std::min(N(), count_in_class(length(query_lengths, b)));
  }
  // The end of the keys that queries up to `last` see.
  constexpr i64 end_of_keys(i64 b, i64 last) const {
    return lists.any() ? keys(b) : std::min(keys(b), band.end.at(last));
  }
  // The row of the dropout mask of the class's first query; the others are `classes` apart.
  constexpr i64 mask_row(i64 b, i64 h) const { return (b * H() + h) * all_queries + residue; }
  // Of all classes, and the same for each.
  DropoutMask mask() const {
    return DropoutMask(random, dropout, columns, H() * (all_queries > 0 ? all_queries : N()));
  }

  constexpr i64 longest_class(i64 positions) const {
    return classes == 1 ? positions : (positions + classes - 1) / classes;
  }
  constexpr i64 count_in_class(i64 positions) const {
    if (classes == 1) return std::max<i64>(positions, 0);
    return positions <= residue ? 0 : (positions - residue + classes - 1) / classes;
  }
  // Every `classes`-th position along an axis, from `c` on.
  template <class U, int rank>
  constexpr View<U, rank> of_class(View<U, rank> x, i64 c, int axis) const {
    if (classes == 1 || x.data == nullptr) return x;
    x.data += c * x.strides[axis];
    x.sizes[axis] = x.sizes[axis] <= c ? 0 : (x.sizes[axis] - c + classes - 1) / classes;
    x.strides[axis] *= classes;
    return x;
  }
  // The sequences of residue c, as a problem of their own.
  constexpr Pairs of_class(i64 c) const {
    Pairs part = *this;
    part.all_queries = N();
    part.residue = c;
    part.band.first.least = std::max(band.first.least, part.count_in_class(first_key));
    part.q = of_class(q, c, 1);
    part.k = of_class(k, c, 1);
    part.v = of_class(v, c, 1);
    part.bias = of_class(of_class(bias, c, 2), c, 3);
    return part;
  }

 private:
  static constexpr i64 length(const i64* lengths, i64 b) {
    return lengths == nullptr ? Staircase::infinite : std::max<i64>(lengths[b], 0);
  }
};

// The most columns of a head whose bf16 the kernels of a CUDA device take: as many as fit its
// shared memory.
i64 widest_stored_head(const Cuda&);

// Tables [B, H, D] by distance, viewed as [B, H, N, S].
template <class T>
constexpr View<T, 4> by_distance(const View<T, 3>& tables, i64 origin, i64 N, i64 S) {
  return {tables.data + origin * tables.stride(2),
          {tables.size(0), tables.size(1), N, S},
          {tables.stride(0), tables.stride(1), -tables.stride(2), tables.stride(2)}};
}

template <class Device, class S>
struct PairsKernels {
  using T = Accumulator<S>;
  // All of `out` and `log_sums` [B, H, N] is written; log_sums is +∞ for a query without keys, so
  // that exp(z − ℓ) is 0. If `before` has data, `out` holds the result of other parts, and `before`
  // their log_sums.
  static void forward(const Device&, const Pairs<S>&, View<const T, 3> before, View<S, 4> out,
                      View<T, 3> log_sums);
};

// The gradients that a part adds to; it overwrites the others.
struct AddTo {
  bool queries = false, keys = false;
};

// Where dz of a bias is accumulated, initially zero: pair by pair [B, H, N, S], or by distance [B,
// H, D] at origin + j − i, in a fixed order. Not wanted if it has no data. By distance, classes is
// 1.
template <class T>
struct BiasGradient {
  View<T, 4> pairs = {};
  View<T, 3> distances = {};
  i64 origin = 0;
};

template <class Device, class S>
struct PairsBackwardKernels {
  using T = Accumulator<S>;
  // All of dq, dk, dv is written, or added to.
  static void backward(const Device&, const Pairs<S>&, View<const S, 4> out,
                       View<const T, 3> log_sums, View<const S, 4> dout, AddTo add, View<S, 4> dq,
                       View<S, 4> dk, View<S, 4> dv, BiasGradient<T> dbias);
};

}  // namespace weft
