// Tiles of scores on the CPU, for pairs_cpu.cpp and pairs_backward_cpu.cpp: what the queries of a
// tile see, its bias, masks and dropout, and the rows of a head packed. The equations are in
// pairs.h.
//
// Vector lanes hold queries: a tile of scores is kept transposed, zᵀ [keys, queries], so that the
// running maximum, the sum and ℓ are vectors, there are no cross-lane sums, and all products but
// two have contiguous rows. The tiles, their K, V, Q and dO, and the gradients that they add to
// stay in the L1 and L2 caches.
//
// The hidden pairs of a tile (at the edge of a band, or in a bit table) are given as one 64-bit
// word per key, one bit per query; a tile without words is whole. Keys that half of the lanes do
// not see are skipped for that half.
//
// Scores, their maximum and ℓ are in units of ln 2 here: queries are packed with τ log₂e, and
// powers of two take fewer operations than those of e.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "ops/attention/engines/pairs/narrow.h"
#include "ops/attention/engines/pairs/pairs.h"
#include "ops/attention/infinity.h"
#include "ops/attention/rows.h"
#include "ops/dropout/mask_rows.h"
#include "runtime/operands.h"
#include "runtime/simd.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft::pair_tiles {

namespace hn = simd::hn;
using std::numbers::ln2_v, std::numbers::log2e_v;

inline constexpr i64 most_queries = 64;
inline constexpr i64 group = DropoutMask::pieces;  // keys whose weights are dropped by one draw

// Whether narrow.h applies.
template <class S>
bool is_narrow(const Pairs<S>& p) {
  return narrow::possible<Operand<S>>(p.E(), p.M()) && p.bias.data == nullptr;
}

// Keys of a tile: more where rows are short, in narrow heads and in bf16. A tile of a list has 64.
inline constexpr i64 most_keys = narrow::most_keys;
template <class S>
i64 key_tile(const Pairs<S>& p) {
  const bool many = is_narrow(p) || in_pairs<S>;
  return many && !p.lists.any() ? most_keys : tile_side;
}

// Queries of a block. Fewer waste less at the edges of short sequences, where narrow.h skips what a
// vector of queries does not see.
template <class S>
i64 query_block(const Pairs<S>& p) {
  if (is_narrow(p)) return std::min(most_queries, simd::round_up_to_lanes<Accumulator<S>>(p.N()));
  return p.N() <= 256 ? 32 : most_queries;
}

// One block of queries against one tile of keys. Bit `bit` + i of seen[j] says whether query i sees
// key j; without words all do.
template <class T>
struct Tile {
  i64 b, h;
  i64 query, queries, lanes;  // first query, valid queries, all lanes
  i64 key, keys;
  const std::uint64_t* seen = nullptr;
  i64 bit = 0;
  const Band* band = nullptr;  // the source of the words
  // A narrow tile at the band's edge without words: query i sees its first diagonal + i keys. Else
  // negative.
  i64 diagonal = -1;

  // The bits of lanes first … first + count − 1.
  std::uint64_t word(i64 key_of_tile, i64 first, i64 count) const {
    const std::uint64_t word = seen[key_of_tile] >> (bit + first);
    return count == 64 ? word : word & ((std::uint64_t{1} << count) - 1);
  }
  bool sees(i64 lane, i64 key_of_tile) const {
    return seen == nullptr || (seen[key_of_tile] >> (bit + lane) & 1) != 0;
  }
  // A part of it: some lanes and some keys.
  Tile part(i64 first_lane, i64 count, i64 first_key, i64 end_key) const {
    Tile t = *this;
    t.query += first_lane, t.queries = std::min(queries - first_lane, count), t.lanes = count;
    t.key += first_key, t.keys = end_key - first_key;
    if (seen != nullptr) t.seen += first_key, t.bit += first_lane;
    return t;
  }
  bool whole() const {
    for (i64 j = 0; j < keys; ++j) {
      if (word(j, 0, lanes) != word_of(lanes)) return false;
    }
    return true;
  }
  static std::uint64_t word_of(i64 count) {
    return count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  }
};

// For the 64 queries from `first` on and each j < keys: the queries that are not before
// first_above(key + j).
inline void words_from(const Staircase& s, i64 first, i64 key, i64 keys, std::uint64_t* words) {
  constexpr auto all = ~std::uint64_t{0};
  const auto from = [](i64 count) { return count >= 64 ? 0 : all << std::max<i64>(count, 0); };
  if (s.slope != 1 || s.step != 1) {
    for (i64 j = 0; j < keys; ++j) words[j] = from(s.first_above(key + j) - first);
    return;
  }
  // From one key to the next, there is one query fewer.
  const i64 rise = key + 1 - s.offset - first;
  const i64 begin = std::clamp<i64>(std::max(-rise, std::max(s.least, s.offset) - key), 0, keys);
  const i64 end = std::clamp<i64>(64 - rise, begin, keys);
  std::fill(words, words + begin, all);
  std::uint64_t word = from(rise + begin);
  for (i64 j = begin; j < end; ++j, word <<= 1) words[j] = word;
  std::fill(words + end, words + keys, 0);
}

// The words of a tile at the edge of a band: bit i for query first + i, of 64. Most keys of a long
// tile are seen by all of its queries, first … last.
inline void fill_words(const Band& band, i64 first, i64 last, i64 key, i64 keys,
                       std::uint64_t* words) {
  const i64 whole_from = std::clamp<i64>(band.first.at(last) - key, 0, keys);
  const i64 whole_to = std::clamp<i64>(band.end.at(first) - key, 0, keys);
  std::fill(words, words + whole_to, ~std::uint64_t{0});
  words_from(band.end, first, key + whole_to, keys - whole_to, words + whole_to);
  std::array<std::uint64_t, most_keys> hidden;
  words_from(band.first, first, key, whole_from, hidden.data());
  for (i64 j = 0; j < whole_from; ++j) words[j] &= ~hidden[j];
}

// Keys from … to − 1 of a tile.
struct KeyRange {
  i64 from = 0, to = 0;
  bool empty() const { return from >= to; }
};

// The keys that some of the lanes see, in whole groups.
template <class T>
KeyRange keys_seen(const Tile<T>& t, i64 first_lane, i64 count) {
  if (t.seen == nullptr) return {0, t.keys};
  KeyRange range{0, t.keys};
  if (t.band != nullptr) {
    const i64 query = t.query + first_lane;
    range.from = std::clamp<i64>(t.band->first.at(query) - t.key, 0, t.keys);
    range.to = std::clamp<i64>(t.band->end.at(query + count - 1) - t.key, 0, t.keys);
  } else {
    while (!range.empty() && t.word(range.from, first_lane, count) == 0) ++range.from;
    while (!range.empty() && t.word(range.to - 1, first_lane, count) == 0) --range.to;
  }
  if (range.empty()) return {};
  return {range.from / group * group, std::min(t.keys, (range.to + group - 1) / group * group)};
}

// Calls f for the tile in parts: splits off what only one half of its lanes sees, and skips keys
// that nobody sees. A narrow tile is not split; its vectors without queries are skipped.
template <class S, class F, class T = Accumulator<S>>
void each_part(const Pairs<S>& p, const Tile<Accumulator<S>>& t, const F& f) {
  const auto emit = [&](i64 first_lane, i64 lanes, i64 from, i64 to) {
    if (from >= to) return;
    Tile<T> part = t.part(first_lane, lanes, from, to);
    if (part.whole()) part.seen = nullptr;
    f(part);
  };
  if (is_narrow(p)) return f(t.part(0, simd::round_up_to_lanes<T>(t.queries), 0, t.keys));
  if (t.seen == nullptr) return f(t);
  const i64 half = t.lanes / 2;
  const KeyRange all = keys_seen(t, 0, t.lanes);
  if (half % simd::lanes<T> != 0) return emit(0, t.lanes, all.from, all.to);
  const KeyRange low = keys_seen(t, 0, half);
  const KeyRange high = t.queries > half ? keys_seen(t, half, half) : KeyRange{};
  const KeyRange both{std::max(low.from, high.from), std::min(low.to, high.to)};
  if (both.empty()) {
    emit(0, half, low.from, low.to);
    emit(half, half, high.from, high.to);
    return;
  }
  emit(0, half, low.from, both.from);
  emit(half, half, high.from, both.from);
  emit(0, t.lanes, both.from, both.to);
  emit(0, half, both.to, low.to);
  emit(half, half, both.to, high.to);
}

// A tile of a bias or of its gradient, transposed. Its keys are contiguous in memory; those of a
// tile of scores are `lanes` apart.
template <class T>
using TurnedTile = std::array<T, static_cast<std::size_t>(most_keys* most_queries)>;
// Whether it is transposed as a whole: all of its pairs are seen.
template <class T>
bool turns(const Tile<T>& t, i64 key_stride) {
  return t.seen == nullptr && key_stride == 1;
}

// z += bias log₂e, where queries see keys: a table by distance may not cover other pairs. A finite
// bias stays finite.
template <class S, class T = Accumulator<S>>
void add_bias(const Pairs<S>& p, const Tile<Accumulator<S>>& t, Accumulator<S>* z) {
  constexpr T most = std::numeric_limits<T>::max() / 2;
  if (!turns(t, p.bias.stride(3))) {
    for (i64 j = 0; j < t.keys; ++j) {
      for (i64 i = 0; i < t.queries; ++i) {
        if (!t.sees(i, j)) continue;
        const T bias = p.bias(t.b, t.h, t.query + i, t.key + j);
        const T bounded = std::isinf(bias) ? bias : std::clamp(bias, -most, most);
        z[j * t.lanes + i] += log2e_v<T> * bounded;
      }
    }
    return;
  }
  alignas(64) TurnedTile<T> turned;
  if (t.queries < t.lanes) std::fill_n(turned.data(), t.keys * t.lanes, T(0));
  transpose<T>(t.queries, t.keys, {&p.bias(t.b, t.h, t.query, t.key), p.bias.stride(2)},
               {turned.data(), t.lanes});
  const simd::Tag<T> d;
  const auto bound = hn::Set(d, most), log2e = hn::Set(d, log2e_v<T>);
  for (i64 at = 0; at < t.keys * t.lanes; at += simd::lanes<T>) {
    const auto bias = hn::Load(d, turned.data() + at);
    const auto large = hn::AndNot(hn::IsInf(bias), hn::Lt(bound, hn::Abs(bias)));
    const auto bounded = hn::IfThenElse(large, hn::CopySign(bound, bias), bias);
    hn::StoreU(hn::Add(hn::LoadU(d, z + at), hn::Mul(log2e, bounded)), d, z + at);
  }
}

// z in units of ln 2, where q was not scaled, plus the bias, and −∞ if a query does not see the
// key. Returns the factor by which z is still to be multiplied, where there is nothing else to do.
template <class S, class T = Accumulator<S>>
T mask_scores(const Pairs<S>& p, const Tile<Accumulator<S>>& t, Accumulator<S>* z) {
  const simd::Tag<T> d;
  if constexpr (in_pairs<S>) {
    const T factor = log2e_v<T> * p.temperature;
    if (p.bias.data == nullptr && t.seen == nullptr) return factor;
    for (i64 i = 0; i < t.keys * t.lanes; i += simd::lanes<T>) {
      hn::StoreU(hn::Mul(hn::Set(d, factor), hn::LoadU(d, z + i)), d, z + i);
    }
  }
  if (p.bias.data != nullptr) add_bias(p, t, z);
  if (t.seen == nullptr) return 1;
  const auto none = hn::Set(d, -infinity<T>);
  for (i64 j = 0; j < t.keys; ++j) {
    const std::uint64_t word = t.word(j, 0, t.lanes);
    if (word == Tile<T>::word_of(t.lanes)) continue;
    for (i64 i = 0; i < t.lanes; i += simd::lanes<T>) {
      const auto score = hn::LoadU(d, z + j * t.lanes + i);
      hn::StoreU(hn::IfThenElse(simd::mask_of_bits<T>(word >> i), score, none), d,
                 z + j * t.lanes + i);
    }
  }
  return 1;
}

// Scores of the lanes from i on, times what mask_scores() returned.
template <class S, class T = Accumulator<S>>
HWY_INLINE simd::Vector<T> score_of(const T* z, [[maybe_unused]] T factor) {
  const simd::Tag<T> d;
  if constexpr (in_pairs<S>) return hn::Mul(hn::Set(d, factor), hn::LoadU(d, z));
  return hn::LoadU(d, z);
}

// Calls f(key, lane, mask) for the first `keys` of the tile and one vector of queries, in groups of
// eight keys that share one draw; `mask` is true if the weight is kept.
template <class S, class F, class T = Accumulator<S>>
void each_weight_of(const Pairs<S>& p, const Tile<Accumulator<S>>& t, i64 i, i64 keys, const F& f) {
  const DropoutMask mask = p.mask();
  const i64 row = p.mask_row(t.b, t.h) + (t.query + i) * p.classes;
  for (i64 j = 0; j < keys; j += group) {
    each_kept<T>(mask, row, p.classes, p.first_column + t.key + j, [&](i64 column, auto kept) {
      if (j + column < keys) f(j + column, i, kept);
    });
  }
}

// The same for all vectors of the tile.
template <class S, class F, class T = Accumulator<S>>
void each_weight(const Pairs<S>& p, const Tile<Accumulator<S>>& t, const F& f) {
  for (i64 i = 0; i < t.lanes; i += simd::lanes<T>) each_weight_of(p, t, i, t.keys, f);
}

// The key ranges of the vectors of a narrow tile. If the intervals of later vectors do not begin
// and end later, all get the union, and the words hide the rest.
template <class T>
struct VectorRanges {
  std::array<KeyRange, most_queries / simd::lanes<T>> of;

  explicit VectorRanges(const Tile<T>& t) {
    constexpr i64 L = simd::lanes<T>;
    const i64 vectors = t.lanes / L;
    if (t.seen == nullptr) {
      for (i64 v = 0; v < vectors; ++v) {
        of[v] = {0, t.diagonal < 0 ? t.keys : std::min(t.keys, t.diagonal + (v + 1) * L - 1)};
      }
      return;
    }
    bool rising = true;
    for (i64 v = 0; v < vectors; ++v) {
      of[v] = keys_seen(t, v * L, L);
      rising = rising && !of[v].empty() &&
               (v == 0 || (of[v - 1].from <= of[v].from && of[v - 1].to <= of[v].to));
    }
    if (!rising) std::fill_n(of.begin(), vectors, keys_seen(t, 0, t.lanes));
  }
};

// f(i, keys, left) for each vector of queries of a tile, with lanes from i on; see narrow.h.
template <class S, class F, class T = Accumulator<S>>
void each_narrow(const Pairs<S>& p, const Tile<Accumulator<S>>& t,
                 const VectorRanges<Accumulator<S>>& ranges, const Accumulator<S>* k,
                 const Accumulator<S>* v, const F& f) {
  constexpr i64 bits = 8;
  std::array<std::uint8_t, narrow::most_keys * simd::lanes<T> / bits + sizeof(std::uint64_t)> kept;
  constexpr i64 L = simd::lanes<T>;
  for (i64 i = 0; i < t.lanes; i += L) {
    const KeyRange range = ranges.of[i / L];
    if (range.empty()) continue;
    const i64 count = range.to - range.from;
    narrow::Keys<T> keys{
        k + range.from * p.E(), v + range.from * p.M(), count, nullptr, 0, 0, count};
    if (t.diagonal >= 0) {
      keys.whole_to = std::min(count, t.diagonal + i);
    } else if (t.seen != nullptr) {
      keys.seen = t.seen + range.from, keys.bit = t.bit + i;
      if (t.band != nullptr) {
        const i64 key = t.key + range.from, query = t.query + i;
        keys.whole_from = std::clamp<i64>(t.band->first.at(query + L - 1) - key, 0, count);
        keys.whole_to = std::clamp<i64>(t.band->end.at(query) - key, keys.whole_from, count);
      } else {
        keys.find_whole();
      }
    }
    if (p.dropout > 0) {
      const T factor = static_cast<T>(p.mask().factor);
      each_weight_of(p, t.part(i, L, range.from, range.to), 0, count, [&](i64 j, i64, auto mask) {
        hn::StoreMaskBits(simd::Tag<T>{}, mask, kept.data() + j * L / bits);
      });
      f(i, range, keys, narrow::Kept<T>{{kept.data(), L / bits}, factor});
    } else {
      f(i, range, keys, narrow::All{});
    }
  }
}

// Whether a tile is at the edge of the band; if so, writes its words, unless narrow.h knows them.
template <class S>
void see_band(const Pairs<S>& p, Tile<Accumulator<S>>& t, std::uint64_t* words) {
  const auto& [first, end] = p.band;
  const i64 last = t.query + t.queries - 1;
  const bool edge = t.key < first.at(last) || t.key + t.keys > end.at(t.query);
  t.band = &p.band;
  const bool diagonal = edge && is_narrow(p) && first.slope == 0 && first.at(0) <= t.key &&
                        end.slope == 1 && end.step == 1 &&
                        t.query + end.offset >= std::max(end.least, t.key);
  t.diagonal = diagonal ? t.query + end.offset - t.key : -1;
  t.seen = edge && !diagonal ? words : nullptr;
  if (t.seen != nullptr) fill_words(p.band, t.query, last, t.key, t.keys, words);
}

// Rows of one batch item and head.
template <class S>
void pack_head(const PackedRows<S>& to, const View<const S, 4>& x, i64 b, i64 h, i64 begin,
               i64 rows, Accumulator<S> scale = 1) {
  if (rows <= 0) return;
  to.pack(rows, scale, &x(b, begin, h, 0), x.stride(1), x.stride(3), x.size(1) - begin);
}

// Packed rows of queries, turned for tiles whose lanes are queries: to [operands of the width,
// block]; lanes from `rows` on are zero.
template <class S>
void turn(const PackedRows<S>& packed, i64 first, i64 rows, i64 block, Operand<S>* to) {
  const i64 depth = operands<S>(packed.width);
  transpose_block(packed.by_width + first * depth, rows, depth, block, to);
}

// The sequences that are processed, one after the other: batch items, classes, heads. Rows of a
// class are far apart, and those of its heads are adjacent.
struct Sequence {
  i64 b, c, h;
};
template <class S>
Sequence sequence_of(const Pairs<S>& p, i64 number) {
  if (p.classes == 1) return {number / p.H(), 0, number % p.H()};
  return {number / p.H() / p.classes, number / p.H() % p.classes, number % p.H()};
}

// The problem of class c; `first` is that of class 0, and `own` holds any other. Most problems have
// one class, and short heads take no longer than some copies of the problem.
template <class S>
const Pairs<S>& problem_of(const Pairs<S>& all, i64 c, const Pairs<S>& first,
                           std::optional<Pairs<S>>& own) {
  return c == 0 ? first : own.emplace(all.of_class(c));
}

}  // namespace weft::pair_tiles
