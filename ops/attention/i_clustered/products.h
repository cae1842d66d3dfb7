// Shared by forward and backward of improved clustered attention: a block of clusters against a
// tile of keys, and the members of a cluster against the keys of T_c. Equations: i_clustered.h.
#pragma once

#include <algorithm>

#include "ops/attention/clustered/clusters.h"
#include "ops/attention/i_clustered/i_clustered.h"
#include "ops/attention/infinity.h"
#include "ops/attention/rows.h"
#include "ops/dropout/mask_rows.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"

namespace weft::improved {

namespace hn = simd::hn;

constexpr i64 key_tile = 64;
constexpr i64 most_lanes = 128;  // clusters of a block
constexpr i64 member_rows = 64;  // members of a cluster in one product

// One batch item and head.
template <class T>
struct Head {
  const ImprovedClustered<T>& p;
  i64 b, h, queries, keys;
  Members members;

  Head(const ImprovedClustered<T>& problem, i64 piece)
      : p(problem),
        b(piece / p.H()),
        h(piece % p.H()),
        queries(p.queries(b)),
        keys(p.keys(b)),
        members(p.N() > 0 ? &p.labels(b, h, 0) : nullptr, queries, p.clusters) {}

  i64 row() const { return b * p.H() + h; }
};

// The clusters first … first + count − 1, `width` lanes, and one tile of keys at a time.
template <class T>
struct Block {
  const Head<T>& head;
  const ImprovedClustered<T>& p;
  i64 first = 0, count = 0, width;
  T *means, *turned, *k, *v, *z;  // τ q̄ [count, E] and [E, width]; k, v and zᵀ of the tile

  static i64 lanes_of(const ImprovedClustered<T>& p) {
    return simd::round_up_to_lanes<T>(std::min(p.clusters, most_lanes));
  }
  static i64 numbers(const ImprovedClustered<T>& p) {
    return lanes_of(p) * (2 * p.E() + key_tile) + key_tile * (p.E() + p.M());
  }

  Block(const Head<T>& of, Pieces<T>& pieces) : head(of), p(of.p), width(lanes_of(p)) {
    means = pieces.take(width * p.E());
    turned = pieces.take(width * p.E());
    k = pieces.take(key_tile * p.E());
    v = pieces.take(key_tile * p.M());
    z = pieces.take(key_tile * width);
  }

  void start(i64 cluster) {
    first = cluster;
    count = std::min(p.clusters - first, most_lanes);
    for (i64 c = 0; c < count; ++c) {
      const i64 size = head.members.size(first + c);
      const double share = double(p.temperature) / double(std::max<i64>(size, 1));
      sum_of_rows(p.q, head.b, head.h, head.members.of(first + c), size, share, means + c * p.E());
    }
    transpose_block(means, count, p.E(), width, turned);
  }

  // The scores of the keys key … key + keys − 1.
  void score(i64 key, i64 keys) const {
    pack_rows(p.k, head.b, head.h, key, keys, T(1), k);
    tile_product<T>(keys, width, p.E(), {k, p.E(), 1}, {turned, width}, {z, width}, false);
  }

  // Calls f(offset in the tile, lane, d') in groups of eight keys that share one draw.
  template <class F>
  void each_weight(i64 key, i64 keys, const F& f) const {
    const DropoutMask mask = p.bottom_mask();
    const auto factor = hn::Set(simd::Tag<T>{}, static_cast<T>(mask.factor));
    for (i64 i = 0; i < width; i += simd::lanes<T>) {
      for (i64 j = 0; j < keys; j += 8) {
        each_kept<T>(mask, head.row() * p.clusters + first + i, 1, key + j,
                     [&](i64 column, auto kept) {
                       if (j + column >= keys) return;
                       f((j + column) * width + i, i, hn::IfThenElseZero(kept, factor));
                     });
      }
    }
  }
};

// The keys of T_c, and the members of c against them.
template <class T>
struct Top {
  const Head<T>& head;
  const ImprovedClustered<T>& p;
  DropoutMask mask;
  i64 width, count = 0;  // lanes of a row of scores, keys of T_c
  const std::int32_t* chosen = nullptr;
  T *k, *v, *turned;    // [count, E], [count, M], kᵀ [E, width]
  T *mean_weights;      // a_cs [width]
  T *q, *z;             // τ q_i and p_i of up to member_rows members

  static i64 lanes_of(const ImprovedClustered<T>& p) { return simd::round_up_to_lanes<T>(p.topk); }
  static i64 numbers(const ImprovedClustered<T>& p) {
    return lanes_of(p) * (2 * p.E() + p.M() + 1 + member_rows) + member_rows * p.E();
  }

  Top(const Head<T>& of, Pieces<T>& pieces)
      : head(of), p(of.p), mask(p.mask()), width(lanes_of(p)) {
    k = pieces.take(width * p.E());
    v = pieces.take(width * p.M());
    turned = pieces.take(width * p.E());
    mean_weights = pieces.take(width);
    q = pieces.take(member_rows * p.E());
    z = pieces.take(member_rows * width);
  }

  void start(const std::int32_t* keys) {
    chosen = keys;
    for (count = 0; count < p.topk && chosen[count] >= 0; ++count) {
      pack_rows(p.k, head.b, head.h, chosen[count], 1, T(1), k + count * p.E());
      pack_rows(p.v, head.b, head.h, chosen[count], 1, T(1), v + count * p.M());
    }
    transpose_block(k, count, p.E(), width, turned);
  }

  // a_cs of T_c from the mean τ q̄_c; returns their sum, m_c.
  T weigh(const T* mean, T log_sum) {
    tile_product<T>(1, width, p.E(), {mean, p.E(), 1}, {turned, width}, {mean_weights, width},
                    false);
    std::fill(mean_weights + count, mean_weights + width, -infinity<T>);
    const simd::Tag<T> d;
    auto total = hn::Zero(d);
    for (i64 t = 0; t < width; t += simd::lanes<T>) {
      const auto weight =
          simd::exp<T>(hn::Sub(hn::LoadU(d, mean_weights + t), hn::Set(d, log_sum)));
      total = hn::Add(total, weight);
      hn::StoreU(weight, d, mean_weights + t);
    }
    return simd::sum_of_lanes<T>(total);
  }

  // q and p of the members rows[0 … n − 1].
  void score(const std::int32_t* rows, i64 n) {
    for (i64 i = 0; i < n; ++i) {
      pack_rows(p.q, head.b, head.h, rows[i], 1, p.temperature, q + i * p.E());
    }
    tile_product<T>(n, width, p.E(), {q, p.E(), 1}, {turned, width}, {z, width}, false);
    for (i64 i = 0; i < n; ++i) {
      const i64 seen =
          p.causal ? std::upper_bound(chosen, chosen + count, rows[i]) - chosen : count;
      normalise(z + i * width, seen);
    }
  }

  // Softmax over the first `seen` of a row; the others become zero.
  void normalise(T* row, i64 seen) const {
    const simd::Tag<T> d;
    std::fill(row + seen, row + width, seen == 0 ? T(0) : -infinity<T>);
    if (seen == 0) return;
    auto most = hn::LoadU(d, row);
    for (i64 t = simd::lanes<T>; t < width; t += simd::lanes<T>) {
      most = hn::Max(most, hn::LoadU(d, row + t));
    }
    const auto shift = hn::MaxOfLanes(d, most);
    auto total = hn::Zero(d);
    for (i64 t = 0; t < width; t += simd::lanes<T>) {
      const auto weight = simd::exp<T>(hn::Sub(hn::LoadU(d, row + t), shift));
      total = hn::Add(total, weight);
      hn::StoreU(weight, d, row + t);
    }
    scale(row, 1 / simd::sum_of_lanes<T>(total));
  }

  void scale(T* row, T factor) const {
    const simd::Tag<T> d;
    for (i64 t = 0; t < width; t += simd::lanes<T>) {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + t), hn::Set(d, factor)), d, row + t);
    }
  }

  // row ← d row, of query i.
  void drop(i64 i, T* row) const {
    if (p.dropout > 0) apply_dropout<T>(mask, head.row() * p.N() + i, 0, p.topk, row, row);
  }
};

}  // namespace weft::improved
