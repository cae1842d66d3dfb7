// Attention by distance on the CPU, forward; the equations are in distances.h.
#include <cmath>

#include "ops/attention/engines/pairs/distances_cpu.h"

namespace weft {
namespace {

// Queries of one task; the keys and values that they see are packed once.
constexpr i64 forward_share = 1024;

// Forward for one block of queries.
template <class T>
struct ForwardBlock {
  const Distances<T>& p;
  const DistanceFactors<T>& factors;
  i64 block;
  Pieces<T> pieces;
  T* const q = pieces.take(block * p.E());  // transposed
  T* const rows = pieces.take(block * p.E());
  T* const o = pieces.take(block * p.M());  // transposed
  T* const z = pieces.take(block * tile_keys);
  T* const maximum = pieces.take(block);
  T* const sum = pieces.take(block);
  const DistanceProducts<T> positions;

  ForwardBlock(const Distances<T>& problem, const DistanceFactors<T>& of_head, i64 query_block)
      : p(problem),
        factors(of_head),
        block(query_block),
        pieces(block * (2 * p.E() + p.M() + tile_keys + 2) + DistanceProducts<T>::room),
        positions(p, factors.reach, pieces.take(DistanceProducts<T>::room)) {}

  void start(i64 b, i64 h, i64 query, i64 count) const {
    pack_rows(p.q, b, h, query, count, log2e_v<T> * p.temperature, rows);
    transpose_block(rows, count, p.E(), block, q);
    std::fill_n(o, block * p.M(), T(0));
    std::fill_n(maximum, block, -infinity<T>);
    std::fill_n(sum, block, T(0));
  }

  // k and v begin at the tile's first key.
  void add(const DistanceTile& t, const T* k, const T* v) const {
    const i64 E = p.E(), M = p.M();
    tile_product<T>(t.keys, t.lanes, E, {k, E, 1}, {q, block}, {z, t.lanes}, false);
    if (p.table.data != nullptr) positions.add_scores(t, q, block, z);
    hide(t, factors, z);
    run(t);
    drop(p, t, z);
    tile_product<T>(M, t.lanes, t.keys, {v, 1, M}, {z, t.lanes}, {o, block}, true);
  }

  // Replaces scores by weights m e^(s − μ); adds (m + ε) e^(s − μ) to the sum.
  void run(const DistanceTile& t) const {
    const simd::Tag<T> d;
    const auto none = hn::Set(d, -infinity<T>);
    for (i64 i = 0; i < t.lanes; i += simd::lanes<T>) {
      const auto before = hn::LoadU(d, maximum + i);
      auto now = before;
      for (i64 j = 0; j < t.keys; ++j) now = hn::Max(now, hn::LoadU(d, z + j * t.lanes + i));
      const auto shift = hn::IfThenElse(hn::Eq(now, none), hn::Zero(d), now);
      auto total = hn::Zero(d);
      for (i64 j = 0; j < t.keys; ++j) {
        T* const at = z + j * t.lanes + i;
        const i64 distance = t.distance_of(i, j);
        const auto power = simd::exp2<T>(hn::Sub(hn::LoadU(d, at), shift));
        total = hn::MulAdd(power, hn::LoadU(d, factors.share(distance)), total);
        hn::StoreU(hn::Mul(power, hn::LoadU(d, factors.weight(distance))), d, at);
      }
      const auto correction = simd::exp2<T>(hn::Sub(before, shift));
      hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + i), correction, total), d, sum + i);
      hn::StoreU(now, d, maximum + i);
      if (hn::AllTrue(d, hn::Eq(before, now))) continue;
      for (i64 m = 0; m < p.M(); ++m) {
        T* const at = o + m * block + i;
        hn::StoreU(hn::Mul(hn::LoadU(d, at), correction), d, at);
      }
    }
  }

  void finish(i64 b, i64 h, i64 query, i64 count, const View<T, 4>& out,
              const View<T, 3>& log_sums) const {
    for (i64 i = 0; i < block; ++i) {
      const bool empty = sum[i] == 0;  // a sum of NaN is not 0, so NaN is propagated to out
      if (i < count) {
        log_sums(b, h, query + i) = empty ? infinity<T> : ln2_v<T> * maximum[i] + std::log(sum[i]);
      }
      sum[i] = empty ? T(0) : 1 / sum[i];
    }
    const simd::Tag<T> d;
    for (i64 e = 0; e < block * p.M(); e += simd::lanes<T>) {
      hn::StoreU(hn::Mul(hn::LoadU(d, o + e), hn::LoadU(d, sum + e % block)), d, o + e);
    }
    transpose<T>(p.M(), count, {o, block}, {&out(b, query, h, 0), out.stride(1)});
  }
};

}  // namespace

template <class Device, class T>
void DistancesKernels<Device, T>::forward(const Device&, const Distances<T>& p, View<T, 4> out,
                                          View<T, 3> log_sums) {
  const i64 H = p.H(), N = p.N(), M = p.M();
  const i64 shares = (N + forward_share - 1) / forward_share;
  parallel_for(p.B() * H * shares, [&](i64 piece) {
    const i64 b = piece / shares / H, h = piece / shares % H;
    const i64 begin = piece % shares * forward_share, end = std::min(N, begin + forward_share);
    const i64 counted = std::clamp(p.queries(b), begin, end);
    for (i64 i = counted; i < end; ++i) {
      for (i64 m = 0; m < M; ++m) out(b, i, h, m) = 0;
      log_sums(b, h, i) = infinity<T>;
    }
    if (begin == counted) return;
    const DistanceFactors<T> factors(p.ramp_of(h));
    const i64 reach = factors.reach, block = query_block<T>(counted - begin, reach);
    // The first key for the queries from i on, rounded down: the dropout mask is drawn for eight at
    // once.
    const auto first_key = [&](i64 i) {
      return std::max<i64>(p.first_key(i) - reach + 1, 0) / group * group;
    };
    const auto end_of_keys = [&](i64 last) { return std::min(p.keys(b), p.first_key(last) + 1); };
    const i64 first = first_key(begin), keys = std::max<i64>(end_of_keys(counted - 1) - first, 0);
    const Scratch<T> packed(keys * (p.E() + M));
    T* const k = packed.data();
    T* const v = k + keys * p.E();
    pack_rows(p.k, b, h, first, keys, T(1), k);
    pack_rows(p.v, b, h, first, keys, T(1), v);
    const ForwardBlock<T> state(p, factors, block);
    for (i64 i = begin; i < counted; i += block) {
      const i64 count = std::min(block, counted - i), to = end_of_keys(i + count - 1);
      state.start(b, h, i, count);
      for (i64 key = first_key(i); key < to && reach > 0; key += tile_keys) {
        const DistanceTile t{
            b, h, i, block, key, std::min(tile_keys, to - key), p.first_key(i) - key};
        state.add(t, k + (key - first) * p.E(), v + (key - first) * M);
      }
      state.finish(b, h, i, count, out, log_sums);
    }
  });
}

template struct DistancesKernels<Cpu, float>;
template struct DistancesKernels<Cpu, double>;

}  // namespace weft
