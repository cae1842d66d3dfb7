// CPU kernels of attention by distance; the equations are in distances.h.
//
// As in pairs_tile_cpu.h, vector lanes hold queries, scores are transposed, sᵀ [keys, queries], in
// units of ln 2. The factors of a head are tables over d, padded with zeros on both sides: for one
// key and adjacent queries they are contiguous. Products with the rows of distances are computed in
// strips of 16 queries, so that few distances of a strip are outside the tile: [distances, 16]
// against [keys, 16], along the diagonals.
#include <cmath>
#include <numbers>
#include <vector>

#include "ops/attention/engines/pairs/distances.h"
#include "ops/attention/infinity.h"
#include "ops/attention/rows.h"
#include "ops/dropout/mask_rows.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft {
namespace {

namespace hn = simd::hn;
using std::numbers::ln2_v, std::numbers::log2e_v;

constexpr i64 tile_keys = 64, most_queries = 64, strip_queries = 16;
// Queries of one task forward; the keys and values that they see are packed once.
constexpr i64 forward_share = 1024;
constexpr i64 group = DropoutMask::pieces;

// m, m + ε and ∂m/∂z of one head, each over d from −margin to reach + margin, 0 if d is not seen.
template <class T>
class Factors {
 public:
  explicit Factors(const Ramp<T>& ramp)
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
struct Tile {
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
class Positions {
 public:
  static constexpr i64 room = distances_of(tile_keys, strip_queries) * strip_queries;

  Positions(const Distances<T>& p, i64 reach, T* buffer) : p_(p), reach_(reach), x_(buffer) {}

  // z += q · r + c; q [E, ·] is transposed, with a row stride of `row` queries.
  void add_scores(const Tile& t, const T* q, i64 row, T* z) const {
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
  void add_gradients(const Tile& t, const T* ds, const T* q, T* dq, i64 row, T* dtable,
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
  void each_strip(const Tile& t, const F& f) const {
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
void hide(const Tile& t, const Factors<T>& factors, T* z) {
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
void drop(const Distances<T>& p, const Tile& t, T* x) {
  if (p.dropout == 0) return;
  const DropoutMask mask = p.mask();
  drop_rows(mask, p.mask_row(t.b, t.h) + t.query, t.lanes, t.key, t.keys, x);
}

// Forward for one block of queries.
template <class T>
struct ForwardBlock {
  const Distances<T>& p;
  const Factors<T>& factors;
  i64 block;
  Pieces<T> pieces;
  T* const q = pieces.take(block * p.E());  // transposed
  T* const rows = pieces.take(block * p.E());
  T* const o = pieces.take(block * p.M());  // transposed
  T* const z = pieces.take(block * tile_keys);
  T* const maximum = pieces.take(block);
  T* const sum = pieces.take(block);
  const Positions<T> positions;

  ForwardBlock(const Distances<T>& problem, const Factors<T>& of_head, i64 query_block)
      : p(problem),
        factors(of_head),
        block(query_block),
        pieces(block * (2 * p.E() + p.M() + tile_keys + 2) + Positions<T>::room),
        positions(p, factors.reach, pieces.take(Positions<T>::room)) {}

  void start(i64 b, i64 h, i64 query, i64 count) const {
    pack_rows(p.q, b, h, query, count, log2e_v<T> * p.temperature, rows);
    transpose_block(rows, count, p.E(), block, q);
    std::fill_n(o, block * p.M(), T(0));
    std::fill_n(maximum, block, -infinity<T>);
    std::fill_n(sum, block, T(0));
  }

  // k and v begin at the tile's first key.
  void add(const Tile& t, const T* k, const T* v) const {
    const i64 E = p.E(), M = p.M();
    tile_product<T>(t.keys, t.lanes, E, {k, E, 1}, {q, block}, {z, t.lanes}, false);
    if (p.table.data != nullptr) positions.add_scores(t, q, block, z);
    hide(t, factors, z);
    run(t);
    drop(p, t, z);
    tile_product<T>(M, t.lanes, t.keys, {v, 1, M}, {z, t.lanes}, {o, block}, true);
  }

  // Replaces scores by weights m e^(s − μ); adds (m + ε) e^(s − μ) to the sum.
  void run(const Tile& t) const {
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
    const Factors<T> factors(p.ramp_of(h));
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
        const Tile t{b, h, i, block, key, std::min(tile_keys, to - key), p.first_key(i) - key};
        state.add(t, k + (key - first) * p.E(), v + (key - first) * M);
      }
      state.finish(b, h, i, count, out, log_sums);
    }
  });
}

namespace {

// Backward of one batch item and head. Queries are packed block by block, both as rows and
// transposed.
template <class T>
struct HeadBackward {
  const Distances<T>& p;
  const i64 b, h, n;
  const Factors<T> factors;
  const i64 E = p.E(), M = p.M();
  const i64 block, blocks = (n + block - 1) / block, padded = blocks * block;
  Pieces<T> pieces;
  T* const q = pieces.take(padded * E);  // in units of ln 2
  T* const dout = pieces.take(padded * M);
  T* const q_turned = pieces.take(padded * E);
  T* const dout_turned = pieces.take(padded * M);
  T* const dq_turned = pieces.take(padded * E);
  T* const log_sums = pieces.take(padded);
  T* const delta = pieces.take(padded);
  T* const k = pieces.take(tile_keys * E);
  T* const v = pieces.take(tile_keys * M);
  T* const dk = pieces.take(tile_keys * E);
  T* const dv = pieces.take(tile_keys * M);
  T* const a = pieces.take(tile_keys * block);
  T* const ds_rows = pieces.take((tile_keys + 2 * strip_queries) * block);
  T* const ds = ds_rows + strip_queries * block;
  const Positions<T> positions;
  double dspan = 0;

  static i64 working(i64 rows, i64 block, i64 E, i64 M) {
    return rows * (3 * E + 2 * M + 2) + tile_keys * 2 * (E + M) +
           (2 * tile_keys + 2 * strip_queries) * block + Positions<T>::room;
  }

  HeadBackward(const Distances<T>& problem, i64 item, i64 head, i64 queries,
               const View<const T, 4>& out, const View<const T, 3>& row_log_sums,
               const View<const T, 4>& row_dout)
      : p(problem),
        b(item),
        h(head),
        n(queries),
        factors(p.ramp_of(h)),
        block(query_block<T>(n, factors.reach)),
        pieces(working(padded, block, E, M)),
        positions(p, factors.reach, pieces.take(Positions<T>::room)) {
    std::fill(q + n * E, q + padded * E, T(0));
    std::fill(dout + n * M, dout + padded * M, T(0));
    std::fill_n(dq_turned, padded * E, T(0));
    pack_rows(p.q, b, h, 0, n, log2e_v<T> * p.temperature, q);
    pack_rows(row_dout, b, h, 0, n, T(1), dout);
    for (i64 i = 0; i < blocks; ++i) {
      transpose_block(q + i * block * E, block, E, block, q_turned + i * block * E);
      transpose_block(dout + i * block * M, block, M, block, dout_turned + i * block * M);
    }
    for (i64 i = 0; i < padded; ++i) {
      log_sums[i] = i < n ? log2e_v<T> * row_log_sums(b, h, i) : infinity<T>;
      delta[i] = i < n ? simd::dot(dout + i * M, &out(b, i, h, 0), M) : T(0);
    }
  }

  void run(const View<T, 4>& dq_out, const View<T, 4>& dk_out, const View<T, 4>& dv_out, T* dtable,
           T* dbias) {
    const i64 keys = std::clamp<i64>(p.first_key(n - 1) + 1, 0, p.keys(b));
    clear_rows(dk_out, b, h, keys);
    clear_rows(dv_out, b, h, keys);
    const i64 shift = p.first_key(0);  // distance of query i and key j: i + shift − j
    for (i64 key = 0; key < keys; key += tile_keys) {
      const i64 count = std::min(tile_keys, keys - key);
      pack_rows(p.k, b, h, key, count, T(1), k);
      pack_rows(p.v, b, h, key, count, T(1), v);
      std::fill_n(dk, count * E, T(0));
      std::fill_n(dv, count * M, T(0));
      const i64 first = std::max<i64>(key - shift, 0) / block * block;
      const i64 end = std::min(n, key + count - 1 - shift + factors.reach);
      for (i64 query = first; query < end; query += block) {
        add(query, key, count, shift, dtable, dbias);
      }
      unpack_rows(dk, b, h, key, count, dk_out, ln2_v<T>);
      unpack_rows(dv, b, h, key, count, dv_out);
    }
    for (i64 i = 0; i < blocks; ++i) {
      transpose<T>(E, block, {dq_turned + i * block * E, block}, {q + i * block * E, E});
    }
    unpack_rows(q, b, h, 0, n, dq_out, p.temperature);
  }

  // A block of queries against the keys of the tile that some of its queries see.
  void add(i64 query, i64 tile, i64 count, i64 shift, T* dtable, T* dbias) {
    const i64 last = std::min(query + block, n) - 1;
    const i64 from = std::max<i64>(query + shift - factors.reach + 1 - tile, 0) / group * group;
    const i64 keys = std::min(count, last + shift - tile + 1) - from;
    if (keys <= 0) return;
    const Tile t{b, h, query, block, tile + from, keys, query + shift - tile - from};
    const T *const queries = q_turned + query * E, *const own_k = k + from * E;
    tile_product<T>(keys, block, E, {own_k, E, 1}, {queries, block}, {a, block}, false);
    if (p.table.data != nullptr) positions.add_scores(t, queries, block, a);
    hide(t, factors, a);
    tile_product<T>(keys, block, M, {v + from * M, M, 1}, {dout_turned + query * M, block},
                    {ds, block}, false);
    drop(p, t, ds);
    differentiate(t);
    drop(p, t, a);
    tile_product<T>(E, block, keys, {own_k, 1, E}, {ds, block}, {dq_turned + query * E, block},
                    true);
    tile_product<T>(keys, E, block, {ds, block, 1}, {q + query * E, E}, {dk + from * E, E}, true);
    tile_product<T>(keys, M, block, {a, block, 1}, {dout + query * M, M}, {dv + from * M, M}, true);
    if (p.table.data == nullptr) return;
    std::fill_n(ds_rows, strip_queries * block, T(0));
    std::fill_n(ds + keys * block, strip_queries * block, T(0));
    positions.add_gradients(t, ds, q + query * E, dq_turned + query * E, block, dtable, dbias);
  }

  // a holds s, ds holds g: they are replaced by w and ds.
  void differentiate(const Tile& t) {
    const simd::Tag<T> d;
    auto sum = hn::Zero(d);
    for (i64 i = 0; i < t.lanes; i += simd::lanes<T>) {
      const auto log_sum = hn::LoadU(d, log_sums + t.query + i);
      const auto mine = hn::LoadU(d, delta + t.query + i);
      for (i64 j = 0; j < t.keys; ++j) {
        T *const weight_at = a + j * t.lanes + i, *const gradient_at = ds + j * t.lanes + i;
        const i64 distance = t.distance_of(i, j);
        const auto m = hn::LoadU(d, factors.weight(distance));
        const auto g = hn::LoadU(d, gradient_at);
        const auto power = simd::exp2<T>(hn::Sub(hn::LoadU(d, weight_at), log_sum));
        const auto taken = hn::Mul(hn::LoadU(d, factors.share(distance)), mine);
        hn::StoreU(hn::Mul(power, m), d, weight_at);
        hn::StoreU(hn::Mul(power, hn::MulSub(m, g, taken)), d, gradient_at);
        const auto slope = hn::Mul(hn::LoadU(d, factors.slope(distance)), power);
        sum = hn::MulAdd(slope, hn::Sub(g, mine), sum);
      }
    }
    dspan += static_cast<double>(simd::sum_of_lanes<T>(sum));
  }
};

}  // namespace

template <class Device, class T>
void DistancesKernels<Device, T>::backward(const Device&, const Distances<T>& p,
                                           View<const T, 4> out, View<const T, 3> log_sums,
                                           View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk,
                                           View<T, 4> dv, View<T, 3> dtable, View<T, 2> dbias,
                                           View<T, 1> dspans) {
  const i64 B = p.B(), H = p.H(), rows = p.distances(), size = rows * p.E();
  const Scratch<T> tables(dtable.data == nullptr ? 0 : B * H * size);
  const Scratch<T> biases(dbias.data == nullptr ? 0 : B * H * rows);
  std::vector<double> of_spans(static_cast<std::size_t>(B * H), 0);
  parallel_for(B * H, [&](i64 piece) {
    const i64 b = piece / H, h = piece % H, n = p.queries(b);
    T* const own = dtable.data == nullptr ? nullptr : tables.data() + piece * size;
    T* const own_bias = dbias.data == nullptr ? nullptr : biases.data() + piece * rows;
    if (own != nullptr) std::fill_n(own, size, T(0));
    if (own_bias != nullptr) std::fill_n(own_bias, rows, T(0));
    clear_rows(dq, b, h, n);
    if (n == 0) {
      clear_rows(dk, b, h, 0);
      clear_rows(dv, b, h, 0);
      return;
    }
    HeadBackward<T> head(p, b, h, n, out, log_sums, dout);
    head.run(dq, dk, dv, own, own_bias);
    of_spans[static_cast<std::size_t>(piece)] = head.dspan;
  });
  for (i64 h = 0; h < H && dspans.data != nullptr; ++h) {
    double sum = 0;
    for (i64 b = 0; b < B; ++b) sum += of_spans[static_cast<std::size_t>(b * H + h)];
    dspans(h) = static_cast<T>(sum);
  }
  // Sums over all batch items, and over the heads that share a table.
  const i64 tables_kept = dtable.data == nullptr ? 0 : dtable.size(0);
  parallel_for(tables_kept * p.most, B * H / std::max<i64>(tables_kept, 1) * p.E(), [&](i64 row) {
    const i64 table = row / p.most, d = row % p.most;
    for (i64 e = 0; e < p.E(); ++e) {
      T sum = 0;
      for (i64 piece = table; piece < B * H && d < rows; piece += tables_kept) {
        sum += tables.data()[piece * size + d * p.E() + e];
      }
      dtable(table, d, e) = ln2_v<T> * sum;
    }
  });
  for (i64 h = 0; h < H && dbias.data != nullptr; ++h) {
    for (i64 d = 0; d < p.most; ++d) {
      T sum = 0;
      for (i64 b = 0; b < B && d < rows; ++b) sum += biases.data()[(b * H + h) * rows + d];
      dbias(h, d) = p.temperature * sum;
    }
  }
}

template struct DistancesKernels<Cpu, float>;
template struct DistancesKernels<Cpu, double>;

}  // namespace weft
