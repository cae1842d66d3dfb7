// Backward of the engine for pairs on the CPU. The equations are in pairs.h, the layout of a tile
// in pairs_tile_cpu.h.
#include "ops/attention/engines/pairs/pairs_tile_cpu.h"
#include "ops/attention/rows.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"

namespace weft {
namespace {

using namespace pair_tiles;

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

// Calls f for the blocks of queries that see some of the keys of a tile, of queries before
// `queries`.
template <class S, class F>
void each_block_of_queries(const Pairs<S>& p, const Tile<Accumulator<S>>& tile, i64 block,
                           i64 queries, const F& f) {
  Tile<Accumulator<S>> t = tile;
  t.lanes = block;
  std::array<std::uint64_t, most_keys> words;
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
      find(t, dbias.data != nullptr);
      if constexpr (in_pairs<S>) {
        add_products(t, {a_pairs, t.lanes / 2, 1}, {dz_pairs, t.lanes / 2, 1}, 0, t.lanes,
                     {0, t.keys});
      } else {
        add_products(t, {a, t.lanes, 1}, {dz, t.lanes, 1}, 0, t.lanes, {0, t.keys});
      }
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

  // a and dz of the tile, as operands, and its contribution to dq. `stored`: dz is wanted as
  // numbers, too.
  void find(const Tile<T>& t, bool stored) {
    const i64 block = queries.block, n = t.lanes, key = t.key - first;
    const i64 lane = t.query % block, row = t.query - lane;
    const i64 e = operands<S>(p.E()), m = operands<S>(p.M());
    tile_product<O>(t.keys, n, e, k.along_width(key), {queries.q_turned + row * e + lane, block},
                    {a, n}, false);
    const T factor = mask_scores(p, t, a);
    tile_product<O>(t.keys, n, m, v.along_width(key), {queries.dout_turned + row * m + lane, block},
                    {dz, n}, false);
    if (p.dropout > 0) {
      differentiate_dropped(t, factor);
    } else {
      differentiate(t, factor, stored);
    }
    Rows<const O> by_key{};
    if constexpr (in_pairs<S>) {
      by_key = {dz_by_key, n};
    } else {
      by_key = {dz, n};
    }
    tile_product<O>(p.E(), n, operands<S>(t.keys), k.along_rows(key), by_key,
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

  // a holds z, dz holds do · v: they are replaced by a and dz, and those of pairs are rounded to
  // operands.
  void differentiate(const Tile<T>& t, T factor, bool stored) {
    const simd::Tag<T> d;
    for (i64 i = 0; i < t.lanes; i += simd::lanes<T>) {
      const auto log_sum = hn::LoadU(d, queries.log_sums + t.query + i);
      const auto delta = hn::LoadU(d, queries.delta + t.query + i);
      const auto of_key = [&](i64 j) {
        T* const weight_at = a + j * t.lanes + i;
        T* const gradient_at = dz + j * t.lanes + i;
        const auto weight = simd::exp2<T>(hn::Sub(score_of<S>(weight_at, factor), log_sum));
        const auto gradient = hn::Mul(weight, hn::Sub(hn::LoadU(d, gradient_at), delta));
        if (!in_pairs<S>) hn::StoreU(weight, d, weight_at);
        if (!in_pairs<S> || stored) hn::StoreU(gradient, d, gradient_at);
        return std::pair{weight, gradient};
      };
      if constexpr (in_pairs<S>) {
        i64 j = 0;
        for (; j + 1 < t.keys; j += 2) round(t, j, i, of_key(j), of_key(j + 1));
        if (j < t.keys) round(t, j, i, of_key(j), {hn::Zero(d), hn::Zero(d)});
      } else {
        for (i64 j = 0; j < t.keys; ++j) of_key(j);
      }
    }
  }

  // Weights and their gradients of two keys, or of a last one and zeros, as operands.
  template <class V>
  HWY_INLINE void round(const Tile<T>& t, i64 j, i64 i, const std::pair<V, V>& first,
                        const std::pair<V, V>& second) {
    const auto put = [&](O* pairs, __m512i both) {
      O* const to = pairs + (j * t.lanes + i) / 2;
      const auto of_first = _mm512_castsi512_si256(both);
      std::memcpy(to, &of_first, sizeof of_first);
      if (j + 1 == t.keys) return;
      const auto of_second = _mm512_extracti64x4_epi64(both, 1);
      std::memcpy(to + t.lanes / 2, &of_second, sizeof of_second);
    };
    put(a_pairs, rounded_two(first.first, second.first));
    const auto gradients = rounded_two(first.second, second.second);
    put(dz_pairs, gradients);
    hn::StoreU(as_pairs<V>(gradients), simd::Tag<O>{}, dz_by_key + j / 2 * t.lanes + i);
  }

  // The same with dropout: a becomes d ⊙ a, and do · v is masked.
  void differentiate_dropped(const Tile<T>& t, T score_factor) {
    const simd::Tag<T> d;
    const auto scale = hn::Set(d, static_cast<T>(p.mask().factor));
    each_weight(p, t, [&](i64 j, i64 i, auto kept) {
      T* const weight_at = a + j * t.lanes + i;
      T* const gradient_at = dz + j * t.lanes + i;
      const auto log_sum = hn::LoadU(d, queries.log_sums + t.query + i);
      const auto delta = hn::LoadU(d, queries.delta + t.query + i);
      const auto weight = simd::exp2<T>(hn::Sub(score_of<S>(weight_at, score_factor), log_sum));
      const auto factor = hn::IfThenElseZero(kept, scale);
      hn::StoreU(hn::Mul(weight, factor), d, weight_at);
      const auto dweight = hn::Mul(factor, hn::LoadU(d, gradient_at));
      hn::StoreU(hn::Mul(weight, hn::Sub(dweight, delta)), d, gradient_at);
    });
    if constexpr (in_pairs<S>) {
      along_queries<S>(a, t.keys, t.lanes, a_pairs);
      along_queries<S>(dz, t.keys, t.lanes, dz_pairs);
      along_keys<S>(dz, t.keys, t.lanes, dz_by_key);
    }
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
    [[maybe_unused]] const TileProducts<Operand<S>> products;
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

template struct PairsBackwardKernels<Cpu, float>;
template struct PairsBackwardKernels<Cpu, double>;
template struct PairsBackwardKernels<Cpu, bf16>;

}  // namespace weft
