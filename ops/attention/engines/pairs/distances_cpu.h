// What the CPU kernels of attention by distance share; the equations are in distances.h.
//
// As in pairs_tile_cpu.h, vector lanes hold queries, scores are transposed, sᵀ [keys, queries], in
// units of ln 2. The factors of a head are tables over d, padded with zeros on both sides: for one
// key and adjacent queries they are contiguous. Products with the rows of distances are computed in
// strips of 16 queries, so that few distances of a strip are outside the tile: [distances, 16]
// against [keys, 16], along the diagonals.
#pragma once

#include <numbers>

#include "ops/attention/engines/pairs/distances.h"
#include "ops/attention/infinity.h"
#include "ops/attention/rows.h"
#include "ops/dropout/mask_rows.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft {

namespace hn = simd::hn;
using std::numbers::ln2_v, std::numbers::log2e_v;

constexpr i64 tile_keys = 64, most_queries = 64, strip_queries = 16;
constexpr i64 group = DropoutMask::pieces;

// m, m + ε and ∂m/∂z of one head, each over d from −margin to reach + margin, 0 if d is not seen.
template <class T>
class DistanceFactors {
 public:
  explicit DistanceFactors(const Ramp<T>& ramp)
      : reach(ramp.reach), length_(reach + 2 * margin), buffer_(3 * length_) {
    T* const all = buffer_.data();
    std::fill_n(all, 3 * length_, T(0));
    for (i64 d = 0; d < reach; ++d) {
      const i64 at = margin + d;
      all[at] = ramp.factor(d);
      all[length_ + at] = ramp.factor(d) + ramp.epsilon();
      all[2 * length_ + at] = ramp.slope(d);
    }
  }

  const T* weight(i64 d) const { return buffer_.data() + margin + d; }
  const T* share(i64 d) const { return weight(d) + length_; }
  const T* slope(i64 d) const { return share(d) + length_; }

  const i64 reach;

 private:
  // No distance of a tile with a visible pair is further out.
  static constexpr i64 margin = tile_keys + most_queries + group;
  i64 length_;
  Scratch<T> buffer_;
};

// Queries of a block: short windows need small blocks.
template <class T>
i64 query_block(i64 queries, i64 reach) {
  const i64 most = reach <= 256 ? most_queries / 2 : most_queries;
  return std::min(most, simd::round_up_to_lanes<T>(queries));
}

// A block of queries against a tile of keys.
struct DistanceTile {
  i64 b, h;
  i64 query, lanes;  // lanes beyond the last query hold zeros
  i64 key, keys;
  i64 distance;  // between the first query and the first key

  i64 distance_of(i64 lane, i64 key_of_tile) const { return distance + lane - key_of_tile; }
};

// Distances of a strip of `width` queries with `keys` keys. The pair of query i and key j has index
// i + keys − 1 − j among them.
constexpr i64 distances_of(i64 keys, i64 width) { return keys + width - 1; }

// A view that reads element (row + i, i) of a matrix for consecutive i.
template <class T>
class Diagonal {
 public:
  explicit Diagonal(i64 row)
      : step_(hn::Mul(hn::Iota(index_, 0), hn::Set(index_, static_cast<Index>(row + 1)))) {}
  simd::Vector<T> operator()(const T* from) const {
    return hn::GatherIndex(simd::Tag<T>{}, from, step_);
  }

 private:
  using Index = std::conditional_t<std::is_same_v<T, float>, std::int32_t, i64>;
  static constexpr simd::Tag<Index> index_{};
  hn::VFromD<simd::Tag<Index>> step_;
};

// The products with rows of distances of one block of queries.
template <class T>
class DistanceProducts {
 public:
  static constexpr i64 room = distances_of(tile_keys, strip_queries) * strip_queries;

  DistanceProducts(const Distances<T>& p, i64 reach, T* buffer)
      : p_(p), reach_(reach), x_(buffer) {}

  // z += q · r + c; q [E, ·] is transposed, with a row stride of `row` queries.
  void add_scores(const DistanceTile& t, const T* q, i64 row, T* z) const {
    each_strip(t, [&](i64 lane, i64 width, i64 lowest, i64 from, i64 to) {
      const i64 all = distances_of(t.keys, width);
      std::fill_n(x_, (from - lowest) * width, T(0));
      std::fill(x_ + (to - lowest) * width, x_ + all * width, T(0));
      const bool biased = p_.bias.data != nullptr;
      for (i64 d = from; biased && d < to; ++d) {
        std::fill_n(x_ + (d - lowest) * width, width,
                    log2e_v<T> * p_.temperature * p_.bias(t.h, d));
      }
      tile_product<T>(to - from, width, p_.E(), rows(t.h, from), {q + lane, row},
                      {x_ + (from - lowest) * width, width}, biased);
      const Diagonal<T> diagonal(width);
      const simd::Tag<T> d;
      for (i64 j = 0; j < t.keys; ++j) {
        for (i64 i = 0; i < width; i += simd::lanes<T>) {
          T* const at = z + j * t.lanes + lane + i;
          const T* const score = x_ + (t.keys - 1 - j + i) * width + i;
          hn::StoreU(hn::Add(hn::LoadU(d, at), diagonal(score)), d, at);
        }
      }
    });
  }

  // From ds [keys, lanes], padded with strip_queries rows of zeros on both sides, adds to dq [E,
  // ·], transposed, and if they are wanted to dr [most, E] and dc [most]. q is [·, E].
  void add_gradients(const DistanceTile& t, const T* ds, const T* q, T* dq, i64 row, T* dtable,
                     T* dbias) const {
    each_strip(t, [&](i64 lane, i64 width, i64 lowest, i64 from, i64 to) {
      const Diagonal<T> diagonal(t.lanes);
      const simd::Tag<T> d;
      for (i64 x = from - lowest; x < to - lowest; ++x) {
        for (i64 i = 0; i < width; i += simd::lanes<T>) {
          const T* const score = ds + (t.keys - 1 - x + i) * t.lanes + lane + i;
          hn::StoreU(diagonal(score), d, x_ + x * width + i);
        }
      }
      const T* const of_rows = x_ + (from - lowest) * width;
      const Strided<T> r = rows(t.h, from);
      tile_product<T>(p_.E(), width, to - from, {r.data, r.column, r.row}, {of_rows, width},
                      {dq + lane, row}, true);
      for (i64 x = from; dbias != nullptr && x < to; ++x) {
        auto sum = hn::Zero(d);
        for (i64 i = 0; i < width; i += simd::lanes<T>) {
          sum = hn::Add(sum, hn::LoadU(d, x_ + (x - lowest) * width + i));
        }
        dbias[x] += simd::sum_of_lanes<T>(sum);
      }
      if (dtable == nullptr) return;
      tile_product<T>(to - from, p_.E(), width, {of_rows, width, 1}, {q + lane * p_.E(), p_.E()},
                      {dtable + from * p_.E(), p_.E()}, true);
    });
  }

 private:
  Strided<T> rows(i64 h, i64 from) const {
    return {&p_.table(p_.table_of(h), from, 0), p_.table.stride(1), p_.table.stride(2)};
  }
  // f(lane, width, lowest, from, to): the distances of the strip begin at `lowest`, and from … to −
  // 1 of them are seen.
  template <class F>
  void each_strip(const DistanceTile& t, const F& f) const {
    for (i64 lane = 0; lane < t.lanes; lane += strip_queries) {
      const i64 width = std::min(strip_queries, t.lanes - lane);
      const i64 lowest = t.distance_of(lane, t.keys - 1);
      const i64 from = std::max<i64>(lowest, 0);
      const i64 to = std::min(lowest + distances_of(t.keys, width), reach_);
      if (from < to) f(lane, width, lowest, from, to);
    }
  }

  const Distances<T>& p_;
  i64 reach_;
  T* x_;  // of a strip
};

// −∞ for pairs that are not seen.
template <class T>
void hide(const DistanceTile& t, const DistanceFactors<T>& factors, T* z) {
  const simd::Tag<T> d;
  const auto none = hn::Set(d, -infinity<T>);
  for (i64 j = 0; j < t.keys; ++j) {
    const T* const weight = factors.weight(t.distance_of(0, j));
    if (t.distance_of(0, j) >= 0 && t.distance_of(t.lanes - 1, j) < factors.reach) continue;
    for (i64 i = 0; i < t.lanes; i += simd::lanes<T>) {
      T* const at = z + j * t.lanes + i;
      const auto hidden = hn::Eq(hn::LoadU(d, weight + i), hn::Zero(d));
      hn::StoreU(hn::IfThenElse(hidden, none, hn::LoadU(d, at)), d, at);
    }
  }
}

// x times the dropout mask.
template <class T>
void drop(const Distances<T>& p, const DistanceTile& t, T* x) {
  if (p.dropout == 0) return;
  const DropoutMask mask = p.mask();
  drop_rows(mask, p.mask_row(t.b, t.h) + t.query, t.lanes, t.key, t.keys, x);
}

}  // namespace weft
