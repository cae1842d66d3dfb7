// One head of LSH attention, round by round: the sorted lists, keys and values in the order of the
// list, and tiles of scores. Shared by forward and backward; the rules are in lsh.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/attention/lsh/lsh.h"
#include "ops/attention/rows.h"
#include "ops/dropout/mask_rows.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"

namespace weft {

namespace lsh_detail {

namespace hn = simd::hn;

// Queries of a tile: those of one chunk, up to 64.
constexpr i64 lsh_block(i64 chunk) { return chunk <= 16 ? 16 : chunk <= 32 ? 32 : 64; }

// Queries rank … rank + queries − 1 of the list against the `keys` rows from `row` on.
struct LshTile {
  i64 rank, queries;
  i64 row, keys;
};

template <class T>
class LshRounds {
 public:
  const Lsh<T>& p;
  const i64 b, h, N, c, block;  // N: the length of this sequence

 private:
  Scratch<std::int32_t> lists_;
  Scratch<T> packed_;

 public:
  T *q, *k, *v, *norms;         // [N, …] by position; q times τ
  T *keys, *values;             // [lead + N, …] in the order of the list, first the chunk before it
  T *positions, *buckets;       // [lead + N] of these keys
  T* chunks;                    // [R, lead + N] of the same keys in every round, if counted
  T *q_turned, *scores;         // [E, block], [keys, block]
  T* alone;                     // [block]: 1 if self=last and nothing else is seen
  i64 lead = 0, round = 0;

  static i64 rows(const Lsh<T>& p) { return p.N() + p.chunk(p.N()); }
  static i64 elements(const Lsh<T>& p) {
    const i64 E = p.E(), M = p.M(), c = p.chunk(p.N());
    const i64 counted = p.rules.correct ? p.rules.rounds : 0;
    return p.N() * (2 * E + M + 1) + rows(p) * (E + M + 2 + counted) +
           lsh_block(c) * (E + 2 * c + 1);
  }

  LshRounds(const Lsh<T>& problem, i64 piece)
      : p(problem),
        b(piece / p.H()),
        h(piece % p.H()),
        N(p.length(b)),
        c(p.chunk(N)),
        block(lsh_block(p.chunk(p.N()))),
        lists_(p.rules.rounds * N * (p.rules.correct ? 2 : 1) + p.rules.buckets + 1),
        packed_(elements(p)) {
    const i64 E = p.E(), M = p.M(), R = p.rules.rounds;
    q = packed_.data();
    k = q + N * E;
    v = k + N * E;
    norms = v + N * M;
    keys = norms + N;
    values = keys + rows(p) * E;
    positions = values + rows(p) * M;
    buckets = positions + rows(p);
    chunks = buckets + rows(p);
    q_turned = chunks + rows(p) * (p.rules.correct ? R : 0);
    scores = q_turned + E * block;
    alone = scores + 2 * p.chunk(p.N()) * block;
    std::fill(alone, alone + block, T(0));
    pack_rows(p.q, b, h, 0, N, T(1), k);
    pack_rows(p.q, b, h, 0, N, p.temperature, q);
    pack_rows(p.v, b, h, 0, N, T(1), v);
    for (i64 i = 0; i < N; ++i) {
      T* const key = k + i * E;
      norms[i] = p.rules.normalize ? std::sqrt(simd::dot(key, key, E)) : T(1);
      if (norms[i] == 0) continue;  // the key is 0 already
      for (i64 e = 0; e < E && p.rules.normalize; ++e) key[e] /= norms[i];
    }
    for (i64 r = 0; r < R; ++r) sort(r);
  }

  // Positions in the order of round r.
  std::int32_t* list(i64 r) const { return lists_.data() + r * N; }

  // Gathers keys and values for round r.
  void start(i64 r) {
    const i64 E = p.E(), M = p.M(), R = p.rules.rounds;
    const i64 last = (N - 1) / c * c;
    round = r;
    lead = p.rules.wrap ? N - last : 0;
    const std::int32_t* const before = list((r + R - 1) % R) + last;
    const std::int32_t* const bucket = p.buckets_of(r, b, h);
    for (i64 row = 0; row < lead + N; ++row) {
      const i64 position = row < lead ? before[row] : list(r)[row - lead];
      std::copy(k + position * E, k + (position + 1) * E, keys + row * E);
      std::copy(v + position * M, v + (position + 1) * M, values + row * M);
      positions[row] = static_cast<T>(position);
      buckets[row] = static_cast<T>(bucket[position]);
      for (i64 s = 0; p.rules.correct && s < R; ++s) {
        chunks[s * rows(p) + row] = static_cast<T>(chunk_of(s)[position]);
      }
    }
  }

  // Calls f(tile) for all queries of the round, chunk by chunk.
  template <class F>
  void each_tile(const F& f) const {
    for (i64 begin = 0; begin < N; begin += c) {
      const i64 end = std::min(begin + c, N);
      const i64 row = begin == 0 ? 0 : lead + begin - c;
      for (i64 rank = begin; rank < end; rank += block) {
        f(LshTile{rank, std::min(block, end - rank), row, lead + end - row});
      }
    }
  }

  i64 position(const LshTile& t, i64 i) const { return list(round)[t.rank + i]; }

  // to [width, block] = rows of the tile's queries in `from` [N, width], transposed and padded with
  // zeros.
  void turn_queries(const LshTile& t, const T* from, i64 width, T* to) const {
    for (i64 i = 0; i < block; ++i) {
      if (i < t.queries) {
        const T* const row = from + position(t, i) * width;
        for (i64 e = 0; e < width; ++e) to[e * block + i] = row[e];
      } else {
        for (i64 e = 0; e < width; ++e) to[e * block + i] = 0;
      }
    }
  }

  // scores [keys, block] = z, transposed: lanes hold queries.
  void score(const LshTile& t) const {
    const i64 E = p.E();
    turn_queries(t, q, E, q_turned);
    tile_product<T>(t.keys, block, E, {keys + t.row * E, E, 1}, {q_turned, block},
                    {scores, block}, false);
    if (p.rules.self == LshSelf::last) {
      mark(t, scores, positions, [&](auto z, auto query, auto key) {
        return hn::IfThenElse(hn::Eq(query, key), hn::Zero(d), z);
      });
    }
    if (p.rules.correct) subtract_counts(t);
    if (p.rules.self == LshSelf::exclude) {
      mark(t, scores, positions, [&](auto z, auto query, auto key) {
        return hn::IfThenElse(hn::Eq(query, key), none(), z);
      });
    }
    if (p.causal) {
      mark(t, scores, positions, [&](auto z, auto query, auto key) {
        return hn::IfThenElse(hn::Lt(query, key), none(), z);
      });
    }
    if (!p.rules.across_buckets) {
      mark(t, scores, buckets, [&](auto z, auto query, auto key) {
        return hn::IfThenElse(hn::Eq(query, key), z, none());
      });
    }
    if (p.rules.self == LshSelf::last) hide_self(t);
  }

  // Zeros the gradients of scores that are constants.
  void clear_constants(const LshTile& t, T* dz) const {
    if (p.rules.self != LshSelf::last) return;
    mark(t, dz, positions, [&](auto x, auto query, auto key) {
      return hn::IfThenElse(hn::Eq(query, key), hn::Zero(d), x);
    });
  }

  // Calls f(key, lane, mask) for each vector of the tile; `mask` is true if a weight is kept.
  template <class F>
  void each_weight(const LshTile& t, const F& f) const {
    const DropoutMask mask = p.mask();
    for (i64 i = 0; i < block; i += simd::lanes<T>) {
      const i64 row = ((b * p.H() + h) * p.rules.rounds + round) * p.N() + t.rank + i;
      for (i64 j = 0; j < t.keys; j += DropoutMask::pieces) {
        each_kept<T>(mask, row, 1, j, [&](i64 column, auto kept) {
          if (j + column < t.keys) f(j + column, i, kept);
        });
      }
    }
  }
  T kept_factor() const { return static_cast<T>(p.mask().factor); }

 private:
  static constexpr simd::Tag<T> d{};
  static auto none() { return hn::Set(d, -std::numeric_limits<T>::infinity()); }
  std::int32_t* chunk_of(i64 r) const { return lists_.data() + (p.rules.rounds + r) * N; }

  // Counting sort by bucket, stable.
  void sort(i64 r) const {
    const std::int32_t* const bucket = p.buckets_of(r, b, h);
    std::int32_t* const next =
        lists_.data() + p.rules.rounds * N * (p.rules.correct ? 2 : 1);
    std::fill(next, next + p.rules.buckets + 1, 0);
    for (i64 i = 0; i < N; ++i) ++next[bucket[i] + 1];
    for (i64 k = 0; k < p.rules.buckets; ++k) next[k + 1] += next[k];
    for (i64 i = 0; i < N; ++i) {
      const std::int32_t rank = next[bucket[i]]++;
      list(r)[rank] = static_cast<std::int32_t>(i);
      if (p.rules.correct) chunk_of(r)[i] = static_cast<std::int32_t>(rank / c);
    }
  }

  // z ← f(z, label of the query, label of the key), for rows of the list with labels.
  template <class F>
  void mark(const LshTile& t, T* z, const T* labels, const F& f) const {
    for (i64 i = 0; i < block; i += simd::lanes<T>) {
      const auto query = load_labels(t, labels, i);
      for (i64 j = 0; j < t.keys; ++j) {
        T* const at = z + j * block + i;
        hn::StoreU(f(hn::LoadU(d, at), query, hn::Set(d, labels[t.row + j])), d, at);
      }
    }
  }
  auto load_labels(const LshTile& t, const T* labels, i64 i) const {
    return simd::load<T>(labels + lead + t.rank + i, std::max<i64>(t.queries - i, 0));
  }

  // Replaces z_ii by −∞, unless all others are −∞.
  void hide_self(const LshTile& t) const {
    for (i64 i = 0; i < block; i += simd::lanes<T>) {
      const auto query = load_labels(t, positions, i);
      const auto is_self = [&](i64 j) { return hn::Eq(query, hn::Set(d, positions[t.row + j])); };
      auto most = none();
      for (i64 j = 0; j < t.keys; ++j) {
        const auto z = hn::LoadU(d, scores + j * block + i);
        most = hn::Max(most, hn::IfThenElse(is_self(j), none(), z));
      }
      const auto nothing = hn::Eq(most, none());
      hn::StoreU(hn::IfThenElseZero(nothing, hn::Set(d, T(1))), d, alone + i);
      for (i64 j = 0; j < t.keys; ++j) {
        T* const at = scores + j * block + i;
        const auto hidden = hn::AndNot(nothing, is_self(j));
        hn::StoreU(hn::IfThenElse(hidden, none(), hn::LoadU(d, at)), d, at);
      }
    }
  }

  // z ← z − log n, n: the number of places of all rounds where the query sees the key.
  void subtract_counts(const LshTile& t) const {
    const i64 R = p.rules.rounds;
    const auto one = hn::Set(d, T(1)), zero = hn::Zero(d);
    const T last = static_cast<T>((N - 1) / c);
    for (i64 i = 0; i < block; i += simd::lanes<T>) {
      for (i64 j = 0; j < t.keys; ++j) {
        auto count = zero;
        const auto key_position = static_cast<i64>(positions[t.row + j]);
        for (i64 s = 0; s < R; ++s) {
          const T* const labels = chunks + s * rows(p);
          const auto query = load_labels(t, labels, i), key = hn::Set(d, labels[t.row + j]);
          auto seen = hn::IfThenElseZero(
              hn::Or(hn::Eq(query, key), hn::Eq(query, hn::Add(key, one))), one);
          if (p.rules.wrap && chunks[(s + R - 1) % R * rows(p) + t.row + j] == last) {
            seen = hn::Add(seen, hn::IfThenElseZero(hn::Eq(query, zero), one));
          }
          count =
              hn::Add(count, p.rules.across_buckets
                                 ? seen
                                 : hn::IfThenElseZero(same_bucket(t, s, i, key_position), seen));
        }
        T* const at = scores + j * block + i;
        const auto places = hn::Max(count, one);  // a key that is seen nowhere is masked later
        hn::StoreU(hn::Sub(hn::LoadU(d, at), simd::log<T>(places)), d, at);
      }
    }
  }
  auto same_bucket(const LshTile& t, i64 s, i64 i, i64 key) const {
    HWY_ALIGN T lane[simd::lanes<T>];
    const std::int32_t* const bucket = p.buckets_of(s, b, h);
    for (i64 l = 0; l < simd::lanes<T>; ++l) {
      lane[l] = i + l < t.queries ? static_cast<T>(bucket[position(t, i + l)]) : T(-1);
    }
    return hn::Eq(hn::Load(d, lane), hn::Set(d, static_cast<T>(bucket[key])));
  }
};

}  // namespace lsh_detail
}  // namespace weft
