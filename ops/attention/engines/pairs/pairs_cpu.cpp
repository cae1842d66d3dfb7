// Forward of the engine for pairs on the CPU. The equations are in pairs.h, the layout of a tile
// in pairs_tile_cpu.h.
#include "ops/attention/engines/pairs/few_queries.h"
#include "ops/attention/engines/pairs/pairs_tile_cpu.h"
#include "ops/attention/rows.h"
#include "ops/attention/running_softmax.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"

namespace weft {
namespace {

using namespace pair_tiles;

// Queries of one task; the keys and values that they see are packed once.
constexpr i64 forward_share = 1024;

// Calls f for the tiles of keys that the queries i … i + rows − 1 see, of keys before `keys`.
template <class S, class F>
void each_tile_of_queries(const Pairs<S>& p, const Tile<Accumulator<S>>& block, i64 keys,
                          const F& f) {
  Tile<Accumulator<S>> t = block;
  std::array<std::uint64_t, most_keys> words;
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
    const T factor = mask_scores(p, t, z);
    const auto run = [&](const auto& keep) {
      run_softmax_of<Base::two, T>(
          t.keys, t.lanes, p.M(),
          [&](i64 j, i64 i) { return score_of<S>(z + j * t.lanes + i, factor); }, keep,
          maximum + lane, sum + lane, {o + lane, block});
    };
    if (in_pairs<S> && p.dropout == 0) {
      if constexpr (in_pairs<S>) run(WeightsInPairs{weights, t.lanes});
      add_values(t, v.along_rows(at), {weights, t.lanes});
    } else {
      run(StoredWeights<T>{z, t.lanes});
      if (p.dropout > 0) drop(t);
      add_values(t, v.along_rows(at), along_keys<S>(z, t.keys, t.lanes, weights));
    }
  }

  void drop(const Tile<T>& t) {
    const simd::Tag<T> d;
    const auto scale = hn::Set(d, static_cast<T>(p.mask().factor));
    each_weight(p, t, [&](i64 j, i64 i, auto kept) {
      T* const weight = z + j * t.lanes + i;
      hn::StoreU(hn::IfThenElseZero(kept, hn::Mul(scale, hn::LoadU(d, weight))), d, weight);
    });
  }

  void add_values(const Tile<T>& t, Strided<O> v, Rows<const O> w) {
    tile_product<O>(p.M(), t.lanes, operands<S>(t.keys), v, w, {o + t.query - first, block}, true);
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
    [[maybe_unused]] const TileProducts<Operand<S>> products;
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

template struct PairsKernels<Cpu, float>;
template struct PairsKernels<Cpu, double>;
template struct PairsKernels<Cpu, bf16>;

}  // namespace weft
