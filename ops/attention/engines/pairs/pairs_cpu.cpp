// CPU kernels of the engine for pairs; the equations are in pairs.h.
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
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "ops/attention/engines/pairs/few_queries.h"
#include "ops/attention/engines/pairs/narrow.h"
#include "ops/attention/engines/pairs/pairs.h"
#include "ops/attention/rows.h"
#include "ops/attention/running_softmax.h"
#include "ops/dropout/mask_rows.h"
#include "runtime/operands.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft {
namespace {

namespace hn = simd::hn;
using std::numbers::ln2_v, std::numbers::log2e_v;

constexpr i64 most_queries = 64;
// Queries of one task forward; the keys and values that they see are packed once.
constexpr i64 forward_share = 1024;
constexpr i64 group = DropoutMask::pieces;  // keys whose weights are dropped by one draw

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();

// Whether narrow.h applies.
template <class S>
bool is_narrow(const Pairs<S>& p) {
  return narrow::possible<Operand<S>>(p.E(), p.M()) && p.bias.data == nullptr;
}

// Keys of a tile: more for narrow heads, whose rows are short.
template <class S>
i64 key_tile(const Pairs<S>& p) {
  return is_narrow(p) && !p.lists.any() ? narrow::most_keys : tile_side;
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
  std::array<std::uint64_t, narrow::most_keys> hidden;
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
using TurnedTile = std::array<T, static_cast<std::size_t>(tile_side* most_queries)>;
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

// dbias += dz, of the same pairs.
template <class T>
void add_bias_gradient(const Tile<T>& t, const T* dz, const View<T, 4>& dbias) {
  if (!turns(t, dbias.stride(3))) {
    for (i64 j = 0; j < t.keys; ++j) {
      for (i64 i = 0; i < t.queries; ++i) {
        if (t.sees(i, j)) dbias(t.b, t.h, t.query + i, t.key + j) += dz[j * t.lanes + i];
      }
    }
    return;
  }
  alignas(64) TurnedTile<T> turned;
  transpose<T>(t.keys, t.queries, {dz, t.lanes}, {turned.data(), t.keys});
  for (i64 i = 0; i < t.queries; ++i) {
    simd::add_scaled(T(1), turned.data() + i * t.keys, &dbias(t.b, t.h, t.query + i, t.key),
                     t.keys);
  }
}

// z in units of ln 2, where q was not scaled, plus the bias, and −∞ if a query does not see the
// key.
template <class S, class T = Accumulator<S>>
void mask_scores(const Pairs<S>& p, const Tile<Accumulator<S>>& t, Accumulator<S>* z) {
  const simd::Tag<T> d;
  if constexpr (in_pairs<S>) {
    const auto factor = hn::Set(d, log2e_v<T> * p.temperature);
    for (i64 i = 0; i < t.keys * t.lanes; i += simd::lanes<T>) {
      hn::StoreU(hn::Mul(factor, hn::LoadU(d, z + i)), d, z + i);
    }
  }
  if (p.bias.data != nullptr) add_bias(p, t, z);
  if (t.seen == nullptr) return;
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

// Calls f for the tiles of keys that the queries i … i + rows − 1 see, of keys before `keys`.
template <class S, class F>
void each_tile_of_queries(const Pairs<S>& p, const Tile<Accumulator<S>>& block, i64 keys,
                          const F& f) {
  Tile<Accumulator<S>> t = block;
  std::array<std::uint64_t, narrow::most_keys> words;
  if (p.lists.any()) {
    for (const TileRun& run : p.lists.row(t.b, t.h, t.query / tile_side)) {
      t.seen = p.lists.by_key(run.mask);
      t.bit = t.query % tile_side;
      const i64 end = std::min(keys, i64{run.first + run.count} * tile_side);
      for (t.key = i64{run.first} * tile_side; t.key < end; t.key += tile_side) {
        t.keys = std::min(tile_side, end - t.key);
        each_part(p, t, f);
      }
    }
    return;
  }
  const i64 last = t.query + t.queries - 1, end = std::min(keys, p.band.end.at(last));
  for (t.key = p.band.first.at(t.query) / group * group; t.key < end; t.key += key_tile(p)) {
    t.keys = std::min(key_tile(p), end - t.key);
    see_band(p, t, words.data());
    each_part(p, t, f);
  }
}

// Calls f for the blocks of queries that see some of the keys of a tile, of queries before
// `queries`.
template <class S, class F>
void each_block_of_queries(const Pairs<S>& p, const Tile<Accumulator<S>>& tile, i64 block,
                           i64 queries, const F& f) {
  Tile<Accumulator<S>> t = tile;
  t.lanes = block;
  std::array<std::uint64_t, narrow::most_keys> words;
  if (p.lists.any()) {
    for (const TileRun& run : p.lists.column(t.b, t.h, t.key / tile_side)) {
      t.seen = p.lists.by_key(run.mask);
      const i64 end = std::min(queries, i64{run.first + run.count} * tile_side);
      for (t.query = i64{run.first} * tile_side; t.query < end; t.query += block) {
        t.queries = std::min(block, end - t.query);
        t.bit = t.query % tile_side;
        each_part(p, t, f);
      }
    }
    return;
  }
  const i64 end_of_keys = tile.key + tile.keys;
  const i64 end = std::min(queries, p.band.first.first_above(end_of_keys - 1));
  for (t.query = p.band.end.first_above(tile.key) / block * block; t.query < end;
       t.query += block) {
    t.queries = std::min(block, queries - t.query);
    const i64 last = t.query + t.queries - 1;
    t.key = std::max(tile.key, p.band.first.at(t.query) / group * group);
    t.keys = std::min(end_of_keys, p.band.end.at(last)) - t.key;
    if (t.keys <= 0) continue;
    see_band(p, t, words.data());
    each_part(p, t, f);
  }
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

// Forward for one block of queries: streams over the tiles of keys.
template <class S>
struct ForwardBlock {
  using T = Accumulator<S>;
  using O = Operand<S>;

  const Pairs<S>& p;
  i64 block, first = 0;  // lanes, and the first query
  Scratch<O> operand_memory;
  Scratch<T> memory;
  O* next = operand_memory.data();
  PackedRows<S> rows_of_head{block, p.E(), Along::width, next};
  O *q = next, *weights = q + block * operands<S>(p.E());
  T *z = memory.data(), *o = z + block * key_tile(p), *maximum = o + block * p.M(),
    *sum = maximum + block, *out_rows = sum + block;

  ForwardBlock(const Pairs<S>& problem, i64 query_block)
      : p(problem),
        block(query_block),
        operand_memory(block * (2 * operands<S>(p.E()) + (in_pairs<S> ? key_tile(p) / 2 : 0))),
        memory(block * (key_tile(p) + p.M() + 2 + (std::is_same_v<S, T> ? 0 : p.M()))) {}

  void start(i64 b, i64 h, i64 query, i64 rows) {
    first = query;
    pack_head(rows_of_head, p.q, b, h, query, rows, log2e_v<T> * p.temperature);
    turn(rows_of_head, 0, rows, block, q);
    std::fill(o, o + block * p.M(), T(0));
    std::fill(maximum, maximum + block, -infinity<T>);
    std::fill(sum, sum + block, T(0));
  }

  // Initialises the state from the result of other parts.
  void go_on(i64 b, i64 h, i64 rows, const View<S, 4>& out, const View<const T, 3>& log_sums) {
    if constexpr (std::is_same_v<S, T>) {
      transpose<T>(rows, p.M(), {&out(b, first, h, 0), out.stride(1)}, {o, block});
    }
    for (i64 i = 0; i < rows; ++i) {
      const T log_sum = log_sums(b, h, first + i);
      if (log_sum == infinity<T>) continue;
      maximum[i] = log2e_v<T> * log_sum;
      sum[i] = 1;
    }
  }

  // `at` is the tile's first key among the packed ones.
  void add(const Tile<T>& t, const PackedRows<S>& k, const PackedRows<S>& v, i64 at) {
    const i64 lane = t.query - first;
    if constexpr (!in_pairs<S>) {
      if (is_narrow(p)) {
        const auto run = [&](i64 i, const KeyRange&, const narrow::Keys<T>& seen, auto left) {
          const i64 to = lane + i;
          narrow::forward<T>(seen, left, {q + to, block}, z, maximum + to, sum + to,
                             {o + to, block});
        };
        return each_narrow(p, t, VectorRanges<T>(t), k.by_width + at * p.E(),
                           v.by_width + at * p.M(), run);
      }
    }
    tile_product<O>(t.keys, t.lanes, operands<S>(p.E()), k.along_width(at), {q + lane, block},
                    {z, t.lanes}, false);
    mask_scores(p, t, z);
    run_softmax<Base::two, T>(t.keys, t.lanes, p.M(), z, maximum + lane, sum + lane,
                              {o + lane, block});
    if (p.dropout > 0) {
      const auto scale = hn::Set(simd::Tag<T>{}, static_cast<T>(p.mask().factor));
      each_weight(p, t, [&](i64 j, i64 i, auto kept) {
        T* const weight = z + j * t.lanes + i;
        const simd::Tag<T> d;
        hn::StoreU(hn::IfThenElseZero(kept, hn::Mul(scale, hn::LoadU(d, weight))), d, weight);
      });
    }
    tile_product<O>(p.M(), t.lanes, operands<S>(t.keys), v.along_rows(at),
                    along_keys<S>(z, t.keys, t.lanes, weights), {o + lane, block}, true);
  }

  // out is packed: the numbers of a row are contiguous.
  void finish(i64 b, i64 h, i64 rows, const View<S, 4>& out, const View<T, 3>& log_sums) {
    const simd::Tag<T> d;
    const auto zero = hn::Zero(d);
    for (i64 i = 0; i < block; i += simd::lanes<T>) {
      const auto total = hn::LoadU(d, sum + i);
      const auto empty = hn::Eq(total, zero);  // a sum of NaN is not 0, so NaN is propagated to out
      const auto log_sum =
          hn::MulAdd(hn::Set(d, ln2_v<T>), hn::LoadU(d, maximum + i), simd::log<T>(total));
      hn::StoreU(hn::IfThenElse(empty, hn::Inf(d), log_sum), d, maximum + i);
      const auto share = hn::IfThenElse(empty, zero, hn::Div(hn::Set(d, T(1)), total));
      for (i64 m = 0; m < p.M(); ++m) {
        T* const at = o + m * block + i;
        hn::StoreU(hn::Mul(share, hn::LoadU(d, at)), d, at);
      }
    }
    if (log_sums.stride(2) == 1) {
      std::copy_n(maximum, rows, &log_sums(b, h, first));
    } else {
      for (i64 i = 0; i < rows; ++i) log_sums(b, h, first + i) = maximum[i];
    }
    if constexpr (std::is_same_v<S, T>) {
      transpose<T>(p.M(), rows, {o, block}, {&out(b, first, h, 0), out.stride(1)});
    } else {
      transpose<T>(p.M(), rows, {o, block}, {out_rows, p.M()});
      unpack_rows(out_rows, b, h, first, rows, out);
    }
  }
};

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

}  // namespace

template <class Device, class S>
void PairsKernels<Device, S>::forward(const Device&, const Pairs<S>& all,
                                      View<const T, 3> all_before, View<S, 4> all_out,
                                      View<T, 3> all_log_sums) {
  require((std::is_same_v<S, T> || all_before.data == nullptr), "pairs: bf16 has one part");
  if (few::possible(all)) return few::forward(all.of_class(0), all_before, all_out, all_log_sums);
  const Pairs<S> first_class = all.of_class(0);
  const i64 block = query_block(first_class), longest = all.longest_class(all.N());
  // The keys in lists may be anywhere: all are packed, once.
  const i64 share = all.lists.any() ? longest : forward_share;
  const i64 shares = longest == 0 ? 0 : (longest + share - 1) / share;
  const i64 rows = simd::round_up_to_lanes<T>(std::min(longest, share));
  const i64 last_row = std::max<i64>(longest - 1, 0);
  const i64 seen = all.band.count(last_row, all.longest_class(all.S()));
  const i64 work = rows * seen * (all.E() + all.M());
  parallel_for(all.B() * all.H() * all.classes * shares, work, [&](i64 piece) {
    const auto [b, c, h] = sequence_of(all, piece / shares);
    std::optional<Pairs<S>> own;
    const Pairs<S>& p = problem_of(all, c, first_class, own);
    const View<S, 4> out = all.of_class(all_out, p.residue, 1);
    const View<T, 3> log_sums = all.of_class(all_log_sums, p.residue, 2);
    const View<const T, 3> before = all.of_class(all_before, p.residue, 2);
    const i64 begin = std::min(p.N(), piece % shares * share);
    const i64 end = std::min(p.N(), begin + share);
    const i64 counted = std::clamp(p.queries(b), begin, end);
    for (i64 i = counted; i < end; ++i) {
      for (i64 m = 0; m < p.M(); ++m) out(b, i, h, m) = S();
      log_sums(b, h, i) = infinity<T>;
    }
    if (begin == counted) return;
    const i64 first = p.lists.any() ? 0 : p.band.first.at(begin) / group * group;
    const i64 keys = std::max<i64>(p.end_of_keys(b, counted - 1) - first, 0);
    const Scratch<Operand<S>> packed(PackedRows<S>::size(keys, p.E(), Along::width) +
                                     PackedRows<S>::size(keys, p.M(), Along::rows));
    Operand<S>* next = packed.data();
    const PackedRows<S> k(keys, p.E(), Along::width, next), v(keys, p.M(), Along::rows, next);
    pack_head(k, p.k, b, h, first, keys);
    pack_head(v, p.v, b, h, first, keys);
    ForwardBlock<S> state(p, block);
    for (i64 i = begin; i < counted; i += block) {
      const i64 size = std::min(block, counted - i);
      state.start(b, h, i, size);
      if (before.data != nullptr) state.go_on(b, h, size, out, before);
      each_tile_of_queries(p, Tile<T>{b, h, i, size, block, 0, 0}, first + keys,
                           [&](const Tile<T>& t) { state.add(t, k, v, t.key - first); });
      state.finish(b, h, size, out, log_sums);
    }
  });
}

namespace {

// Backward's data of all queries of one batch item and head, packed block by block.
template <class S>
struct PackedQueries {
  using T = Accumulator<S>;
  using O = Operand<S>;

  i64 E, M, block, count, blocks = (count + block - 1) / block, padded = blocks * block;
  Scratch<O> operand_memory{operands_of(E) + operands_of(M)};
  O* next = operand_memory.data();
  PackedRows<S> q{padded, E, Along::both, next}, dout{padded, M, Along::both, next};
  O *q_turned = next, *dout_turned = q_turned + padded * operands<S>(E);
  Scratch<T> memory;
  T *dq_turned = memory.data(), *log_sums = dq_turned + padded * E, *delta = log_sums + padded,
    *rows = delta + padded, *out_turned = rows + block * std::max(E, M);  // of one block
  T* dout_numbers = out_turned + block * M;                               // turned, of pairs

  PackedQueries(const Pairs<S>& p, i64 query_block, i64 queries)
      : E(p.E()),
        M(p.M()),
        block(query_block),
        count(queries),
        memory(padded * (E + 2) + block * (std::max(E, M) + M + (in_pairs<S> ? M : 0))) {}

  i64 operands_of(i64 width) const {
    return PackedRows<S>::size(padded, width, Along::both) + padded * operands<S>(width);
  }

  void pack(const Pairs<S>& p, i64 b, i64 h, const View<const S, 4>& out,
            const View<const T, 3>& row_log_sums, const View<const S, 4>& row_dout) {
    q.clear(count, padded), dout.clear(count, padded);
    pack_head(q, p.q, b, h, 0, count, log2e_v<T> * p.temperature);
    pack_head(dout, row_dout, b, h, 0, count);
    for (i64 i = 0; i < blocks; ++i) {
      turn(q, i * block, block, block, q_turned + i * block * operands<S>(E));
      turn(dout, i * block, block, block, dout_turned + i * block * operands<S>(M));
      find_delta(b, h, i, out, row_dout);
    }
    std::fill(dq_turned, dq_turned + padded * E, T(0));
    for (i64 i = 0; i < padded; ++i) {
      log_sums[i] = i < count ? log2e_v<T> * row_log_sums(b, h, i) : infinity<T>;
    }
  }

  // Rows of one block as numbers, turned.
  void turn_numbers(const View<const S, 4>& x, i64 b, i64 h, i64 i, T* to) {
    const i64 size = std::min(block, count - i * block);
    if (size < block) std::fill(to, to + block * M, T(0));
    if constexpr (std::is_same_v<S, T>) {  // the numbers of a row are contiguous
      transpose<T>(size, M, {&x(b, i * block, h, 0), x.stride(1)}, {to, block});
    } else {
      pack_rows(x, b, h, i * block, size, T(1), rows);
      transpose<T>(size, M, {rows, M}, {to, block});
    }
  }

  // δ of one block.
  void find_delta(i64 b, i64 h, i64 i, const View<const S, 4>& out,
                  const View<const S, 4>& row_dout) {
    const simd::Tag<T> d;
    turn_numbers(out, b, h, i, out_turned);
    const T* turned = dout_numbers;
    if constexpr (in_pairs<S>) {
      turn_numbers(row_dout, b, h, i, dout_numbers);
    } else {
      turned = dout_turned + i * block * M;
    }
    for (i64 lane = 0; lane < block; lane += simd::lanes<T>) {
      auto sum = hn::Zero(d);
      for (i64 m = 0; m < M; ++m) {
        const i64 at = m * block + lane;
        sum = hn::MulAdd(hn::LoadU(d, turned + at), hn::LoadU(d, out_turned + at), sum);
      }
      hn::StoreU(sum, d, delta + i * block + lane);
    }
  }

  // dq, from its transposed blocks.
  void unpack(i64 b, i64 h, T temperature, bool add, const View<S, 4>& dq) {
    for (i64 i = 0; i < blocks; ++i) {
      transpose<T>(E, block, {dq_turned + i * block * E, block}, {rows, E});
      unpack_rows(rows, b, h, i * block, std::min(block, count - i * block), dq, temperature, add);
    }
  }
};

// Backward for one tile of keys: streams over the blocks of queries.
template <class S>
struct BackwardTile {
  using T = Accumulator<S>;
  using O = Operand<S>;

  const Pairs<S>& p;
  PackedQueries<S>& queries;
  i64 first = 0;  // key
  i64 most = key_tile(p), scores = most * queries.block;
  Scratch<O> operand_memory{PackedRows<S>::size(most, p.E(), Along::both) +
                            PackedRows<S>::size(most, p.M(), Along::width) +
                            (in_pairs<S> ? 3 * scores / 2 : 0)};
  O* next = operand_memory.data();
  PackedRows<S> k{most, p.E(), Along::both, next}, v{most, p.M(), Along::width, next};
  O *a_pairs = next, *dz_pairs = a_pairs + scores / 2, *dz_by_key = dz_pairs + scores / 2;
  Scratch<T> memory{most * (p.E() + p.M()) + 2 * scores};
  T *dk = memory.data(), *dv = dk + most * p.E(), *a = dv + most * p.M(), *dz = a + scores;

  void start(i64 b, i64 h, i64 key, i64 keys) {
    first = key;
    pack_head(k, p.k, b, h, key, keys);
    pack_head(v, p.v, b, h, key, keys);
    std::fill(dk, dk + keys * p.E(), T(0));
    std::fill(dv, dv + keys * p.M(), T(0));
  }

  // From dk as it is summed here, with packed queries: those of numbers are scaled.
  T key_factor() const { return in_pairs<S> ? p.temperature : ln2_v<T>; }

  void add(const Tile<T>& t, const View<T, 4>& dbias) {
    if (is_narrow(p)) {
      const VectorRanges<T> ranges(t);
      find_narrow(t, ranges);
      add_narrow(t, ranges);
    } else {
      find(t);
      add_products(t, along_queries<S>(a, t.keys, t.lanes, a_pairs),
                   along_queries<S>(dz, t.keys, t.lanes, dz_pairs), 0, t.lanes, {0, t.keys});
    }
    if (dbias.data != nullptr) add_bias_gradient(t, dz, dbias);
  }

  // The contribution of some lanes of the tile, with weights and their gradients, to dv and dk of
  // some of its keys.
  void add_products(const Tile<T>& t, const Strided<O>& weights, const Strided<O>& gradients,
                    i64 lane, i64 lanes, const KeyRange& range) {
    const i64 E = p.E(), M = p.M(), at = range.from * weights.row + lane;
    const i64 key = t.key - first + range.from, query = t.query + lane;
    const i64 keys = range.to - range.from;
    tile_product<O>(keys, M, operands<S>(lanes), {weights.data + at, weights.row, 1},
                    queries.dout.rows_from(query), {dv + key * M, M}, true);
    tile_product<O>(keys, E, operands<S>(lanes), {gradients.data + at, gradients.row, 1},
                    queries.q.rows_from(query), {dk + key * E, E}, true);
  }

  // The same for all lanes; keys that the same vectors see are processed together.
  void add_narrow(const Tile<T>& t, const VectorRanges<T>& ranges) {
    if constexpr (!in_pairs<S>) {
      constexpr i64 L = simd::lanes<T>;
      const i64 vectors = t.lanes / L;
      for (i64 j = 0; j < t.keys;) {
        i64 until = t.keys, begin = vectors, end = 0;
        for (i64 v = 0; v < vectors; ++v) {
          const KeyRange& range = ranges.of[v];
          if (range.from > j) until = std::min(until, range.from);
          if (range.to > j) until = std::min(until, range.to);
          if (range.from <= j && j < range.to) begin = std::min(begin, v), end = v + 1;
        }
        if (begin < end) {
          add_products(t, {a, t.lanes, 1}, {dz, t.lanes, 1}, begin * L, (end - begin) * L,
                       {j, until});
        }
        j = until;
      }
    }
  }

  // a and dz of the tile, and its contribution to dq.
  void find(const Tile<T>& t) {
    const i64 block = queries.block, n = t.lanes, key = t.key - first;
    const i64 lane = t.query % block, row = t.query - lane;
    const i64 e = operands<S>(p.E()), m = operands<S>(p.M());
    tile_product<O>(t.keys, n, e, k.along_width(key), {queries.q_turned + row * e + lane, block},
                    {a, n}, false);
    mask_scores(p, t, a);
    tile_product<O>(t.keys, n, m, v.along_width(key), {queries.dout_turned + row * m + lane, block},
                    {dz, n}, false);
    if (p.dropout > 0) {
      differentiate_dropped(t);
    } else {
      differentiate(t);
    }
    tile_product<O>(p.E(), n, operands<S>(t.keys), k.along_rows(key),
                    along_keys<S>(dz, t.keys, n, dz_by_key),
                    {queries.dq_turned + row * p.E() + lane, block}, true);
  }

  // The same by narrow.h.
  void find_narrow(const Tile<T>& t, const VectorRanges<T>& ranges) {
    if constexpr (!in_pairs<S>) {
      constexpr i64 width = narrow::width;
      const i64 block = queries.block, n = t.lanes, key = t.key - first;
      const i64 at = t.query / block * block * width + t.query % block;
      const auto run = [&](i64 i, const KeyRange& range, const narrow::Keys<T>& keys, auto left) {
        const i64 to = at + i, score = range.from * n + i;
        narrow::backward<T>(keys, left, {queries.q_turned + to, block},
                            {queries.dout_turned + to, block}, queries.log_sums + t.query + i,
                            queries.delta + t.query + i, {a + score, n}, {dz + score, n},
                            {queries.dq_turned + to, block});
      };
      each_narrow(p, t, ranges, k.by_width + key * width, v.by_width + key * width, run);
    }
  }

  // a holds z, dz holds do · v: they are replaced by a and dz.
  void differentiate(const Tile<T>& t) {
    const simd::Tag<T> d;
    for (i64 i = 0; i < t.lanes; i += simd::lanes<T>) {
      const auto log_sum = hn::LoadU(d, queries.log_sums + t.query + i);
      const auto delta = hn::LoadU(d, queries.delta + t.query + i);
      for (i64 j = 0; j < t.keys; ++j) {
        T* const weight_at = a + j * t.lanes + i;
        T* const gradient_at = dz + j * t.lanes + i;
        const auto weight = simd::exp2<T>(hn::Sub(hn::LoadU(d, weight_at), log_sum));
        hn::StoreU(weight, d, weight_at);
        hn::StoreU(hn::Mul(weight, hn::Sub(hn::LoadU(d, gradient_at), delta)), d, gradient_at);
      }
    }
  }

  // The same with dropout: a becomes d ⊙ a, and do · v is masked.
  void differentiate_dropped(const Tile<T>& t) {
    const simd::Tag<T> d;
    const auto scale = hn::Set(d, static_cast<T>(p.mask().factor));
    each_weight(p, t, [&](i64 j, i64 i, auto kept) {
      T* const weight_at = a + j * t.lanes + i;
      T* const gradient_at = dz + j * t.lanes + i;
      const auto log_sum = hn::LoadU(d, queries.log_sums + t.query + i);
      const auto delta = hn::LoadU(d, queries.delta + t.query + i);
      const auto weight = simd::exp2<T>(hn::Sub(hn::LoadU(d, weight_at), log_sum));
      const auto factor = hn::IfThenElseZero(kept, scale);
      hn::StoreU(hn::Mul(weight, factor), d, weight_at);
      const auto dweight = hn::Mul(factor, hn::LoadU(d, gradient_at));
      hn::StoreU(hn::Mul(weight, hn::Sub(dweight, delta)), d, gradient_at);
    });
  }
};

}  // namespace

template <class Device, class S>
void PairsBackwardKernels<Device, S>::backward(const Device&, const Pairs<S>& all,
                                               View<const S, 4> all_out,
                                               View<const T, 3> all_log_sums,
                                               View<const S, 4> all_dout, AddTo add,
                                               View<S, 4> all_dq, View<S, 4> all_dk,
                                               View<S, 4> all_dv, BiasGradient<T> bias) {
  require((std::is_same_v<S, T> || !(add.queries || add.keys)), "pairs: bf16 has one part");
  const View<T, 4> all_dbias =
      bias.distances.data == nullptr
          ? bias.pairs
          : by_distance(bias.distances, bias.origin, all.N(), all.S());
  const Pairs<S> first_class = all.of_class(0);
  const i64 block = query_block(first_class);
  parallel_for(all.B() * all.H() * all.classes, [&](i64 piece) {
    const auto [b, c, h] = sequence_of(all, piece);
    std::optional<Pairs<S>> own;
    const Pairs<S>& p = problem_of(all, c, first_class, own);
    const View<S, 4> dq = all.of_class(all_dq, c, 1), dk = all.of_class(all_dk, c, 1);
    const View<S, 4> dv = all.of_class(all_dv, c, 1);
    const View<T, 4> dbias = all.of_class(all.of_class(all_dbias, c, 2), c, 3);
    const i64 counted = p.queries(b);
    const i64 keys = counted == 0 ? 0 : p.end_of_keys(b, counted - 1);
    if (!add.queries) clear_rows(dq, b, h, counted);
    if (!add.keys) clear_rows(dk, b, h, keys);
    if (!add.keys) clear_rows(dv, b, h, keys);
    if (counted == 0) return;
    PackedQueries<S> queries(p, block, counted);
    queries.pack(p, b, h, all.of_class(all_out, c, 1), all.of_class(all_log_sums, c, 2),
                 all.of_class(all_dout, c, 1));
    BackwardTile<S> tile{p, queries};
    for (i64 j = 0; j < keys; j += key_tile(p)) {
      const i64 size = std::min(key_tile(p), keys - j);
      tile.start(b, h, j, size);
      each_block_of_queries(p, Tile<T>{b, h, 0, 0, block, j, size}, block, counted,
                            [&](const Tile<T>& part) { tile.add(part, dbias); });
      unpack_rows(tile.dk, b, h, j, size, dk, tile.key_factor(), add.keys);
      unpack_rows(tile.dv, b, h, j, size, dv, T(1), add.keys);
    }
    queries.unpack(b, h, p.temperature, add.queries, dq);
  });
}

template struct PairsKernels<Cpu, float>;
template struct PairsKernels<Cpu, double>;
template struct PairsKernels<Cpu, bf16>;
template struct PairsBackwardKernels<Cpu, float>;
template struct PairsBackwardKernels<Cpu, double>;
template struct PairsBackwardKernels<Cpu, bf16>;

}  // namespace weft
