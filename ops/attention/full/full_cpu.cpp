// CPU kernels of full attention; the equations stand in full.h.
//
// Vector lanes hold queries: a tile of scores is kept transposed, zᵀ [keys, queries], so that the
// running maximum, the sum and ℓ are vectors, no sum crosses lanes, and all products but two come
// out with contiguous rows. The tiles, their K, V, Q and dO, and the gradients that they add to
// stay in the first two levels of cache.
//
// Scores, their maximum and ℓ are counted in units of ln 2 here: queries are packed with τ log₂e,
// and powers of two want fewer operations than those of e.
#include "ops/attention/full/full.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/attention/full/narrow.h"
#include "ops/attention/rows.h"
#include "ops/attention/running_softmax.h"
#include "ops/dropout/mask_rows.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft {
namespace {

namespace hn = simd::hn;
using std::numbers::ln2_v, std::numbers::log2e_v;

constexpr std::int64_t most_queries = 64;
// Queries of one piece of parallel work forward; its keys and values are packed once.
constexpr std::int64_t forward_share = 1024;

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();

// Whether narrow.h has what is wanted.
template <class T>
bool is_narrow(const FullAttention<T>& p) {
  return narrow::possible<T>(p.E(), p.M()) && p.bias.data == nullptr;
}

// Keys of a tile: those of narrow heads are short.
template <class T>
std::int64_t key_tile(const FullAttention<T>& p) {
  return is_narrow(p) ? narrow::most_keys : 64;
}

// Queries of a block. Fewer waste less of the diagonal of short causal sequences, of which narrow.h
// leaves out what a vector of queries does not see.
template <class T>
std::int64_t query_block(const FullAttention<T>& p) {
  if (is_narrow(p)) return std::min(most_queries, simd::round_up_to_lanes<T>(p.N()));
  return p.N() <= 256 ? 32 : most_queries;
}

// One block of queries against one tile of keys.
template <class T>
struct Tile {
  std::int64_t b, h;
  std::int64_t query, queries, lanes;  // first query, how many count, lanes in all
  std::int64_t key, keys;
};

// f of the tile; where the first half of its queries sees none of the last keys, f of these apart,
// with the other half. A narrow tile stays whole, without the vectors that hold no query.
template <class T, class F>
void each_part(const FullAttention<T>& p, const Tile<T>& t, const F& f) {
  if (is_narrow(p)) {
    const std::int64_t lanes = simd::round_up_to_lanes<T>(t.queries);
    return f(Tile<T>{t.b, t.h, t.query, t.queries, lanes, t.key, t.keys});
  }
  const std::int64_t half = t.lanes / 2, seen = t.query + half - t.key, last = t.keys - seen;
  if (!p.causal || half % simd::lanes<T> != 0 || last <= 0) return f(t);
  if (seen > 0) f(Tile<T>{t.b, t.h, t.query, t.queries, t.lanes, t.key, seen});
  if (t.queries <= half) return;
  const std::int64_t first = std::max<std::int64_t>(seen, 0);
  f(Tile<T>{t.b, t.h, t.query + half, t.queries - half, half, t.key + first, t.keys - first});
}

// z += bias (in units of ln 2), and −∞ where a key lies behind the query.
template <class T>
void mask_scores(const FullAttention<T>& p, const Tile<T>& t, T* z) {
  const simd::Tag<T> d;
  if (p.bias.data != nullptr) {
    constexpr T most = std::numeric_limits<T>::max() / 2;  // times log₂e it is finite
    for (std::int64_t j = 0; j < t.keys; ++j) {
      for (std::int64_t i = 0; i < t.queries; ++i) {
        const T bias = p.bias(t.b, t.h, t.query + i, t.key + j);
        const T bounded = std::isinf(bias) ? bias : std::clamp(bias, -most, most);
        z[j * t.lanes + i] += log2e_v<T> * bounded;
      }
    }
  }
  if (!p.causal) return;
  const auto none = hn::Set(d, -infinity<T>);
  for (std::int64_t j = std::max<std::int64_t>(t.query + 1 - t.key, 0); j < t.keys; ++j) {
    const auto first = hn::Set(d, static_cast<T>(t.key + j - t.query));
    for (std::int64_t i = 0; i < t.lanes; i += simd::lanes<T>) {
      const auto query = hn::Iota(d, static_cast<T>(i));
      const auto score = hn::LoadU(d, z + j * t.lanes + i);
      hn::StoreU(hn::IfThenElse(hn::Lt(query, first), none, score), d, z + j * t.lanes + i);
    }
  }
}

template <class T>
DropoutMask mask_of(const FullAttention<T>& p) {
  return DropoutMask(p.random, p.dropout, p.S());
}

// Calls f(key, lane, mask) for the first `keys` of the tile and one vector of queries, in groups of
// eight keys that share one draw; `mask` is true where the weight is kept.
template <class T, class F>
void each_weight_of(const FullAttention<T>& p, const Tile<T>& t, std::int64_t i, std::int64_t keys,
                    const F& f) {
  const DropoutMask mask = mask_of(p);
  const std::int64_t row = (t.b * p.H() + t.h) * p.N() + t.query + i;
  for (std::int64_t j = 0; j < keys; j += 8) {
    each_kept<T>(mask, row, t.key + j, [&](std::int64_t column, auto kept) {
      if (j + column < keys) f(j + column, i, kept);
    });
  }
}

// The same for all vectors of the tile.
template <class T, class F>
void each_weight(const FullAttention<T>& p, const Tile<T>& t, const F& f) {
  for (std::int64_t i = 0; i < t.lanes; i += simd::lanes<T>) each_weight_of(p, t, i, t.keys, f);
}

// How many keys of the tile the vector of queries from lane i on sees.
template <class T>
std::int64_t keys_seen(const FullAttention<T>& p, const Tile<T>& t, std::int64_t i) {
  const std::int64_t behind = t.query + i + simd::lanes<T> - t.key;
  return p.causal ? std::clamp<std::int64_t>(behind, 0, t.keys) : t.keys;
}

// f(i, keys, left) for each vector of queries of a tile, lanes i and on; see narrow.h.
template <class T, class F>
void each_narrow(const FullAttention<T>& p, const Tile<T>& t, const T* k, const T* v, const F& f) {
  constexpr std::int64_t bits = 8;
  std::array<std::uint8_t, narrow::most_keys * simd::lanes<T> / bits + sizeof(std::uint64_t)> kept;
  const T factor = static_cast<T>(mask_of(p).factor);
  for (std::int64_t i = 0; i < t.lanes; i += simd::lanes<T>) {
    const narrow::Keys<T> keys{k, v, keys_seen(p, t, i), p.causal ? t.query + i - t.key : t.keys};
    if (p.dropout > 0) {
      each_weight_of(p, t, i, keys.count, [&](std::int64_t j, std::int64_t, auto mask) {
        hn::StoreMaskBits(simd::Tag<T>{}, mask, kept.data() + j * simd::lanes<T> / bits);
      });
      f(i, keys, narrow::Kept<T>{{kept.data(), simd::lanes<T> / bits}, factor});
    } else {
      f(i, keys, narrow::All{});
    }
  }
}

// Forward for one block of queries: streams over the tiles of keys.
template <class T>
struct ForwardBlock {
  const FullAttention<T>& p;
  std::int64_t block, first = 0;  // lanes, and the query of the first one
  Scratch<T> buffer;
  T *q, *rows_of_head, *o, *z, *maximum, *sum;

  ForwardBlock(const FullAttention<T>& problem, std::int64_t query_block)
      : p(problem),
        block(query_block),
        buffer(block * (2 * problem.E() + problem.M() + key_tile(problem) + 2)) {
    q = buffer.data();
    rows_of_head = q + block * p.E();
    o = rows_of_head + block * p.E();
    z = o + block * p.M();
    maximum = z + block * key_tile(p);
    sum = maximum + block;
  }

  void start(std::int64_t b, std::int64_t h, std::int64_t query, std::int64_t rows) {
    first = query;
    pack_rows(p.q, b, h, query, rows, log2e_v<T> * p.temperature, rows_of_head);
    transpose_block(rows_of_head, rows, p.E(), block, q);
    std::fill(o, o + block * p.M(), T(0));
    std::fill(maximum, maximum + block, -infinity<T>);
    std::fill(sum, sum + block, T(0));
  }

  void add(const Tile<T>& t, const T* keys, const T* values) {
    const std::int64_t E = p.E(), M = p.M(), lane = t.query - first;
    const T *const k = keys + t.key * E, *const v = values + t.key * M;
    if (is_narrow(p)) {
      return each_narrow(p, t, k, v, [&](std::int64_t i, const narrow::Keys<T>& seen, auto left) {
        const std::int64_t at = lane + i;
        narrow::forward<T>(seen, left, {q + at, block}, z, maximum + at, sum + at, {o + at, block});
      });
    }
    tile_product<T>(t.keys, t.lanes, E, {k, E, 1}, {q + lane, block}, {z, t.lanes}, false);
    mask_scores(p, t, z);
    run_softmax<Base::two, T>(t.keys, t.lanes, M, z, maximum + lane, sum + lane, {o + lane, block});
    if (p.dropout > 0) {
      const auto scale = hn::Set(simd::Tag<T>{}, static_cast<T>(mask_of(p).factor));
      each_weight(p, t, [&](std::int64_t j, std::int64_t i, auto kept) {
        T* const at = z + j * t.lanes + i;
        const simd::Tag<T> d;
        hn::StoreU(hn::IfThenElseZero(kept, hn::Mul(scale, hn::LoadU(d, at))), d, at);
      });
    }
    tile_product<T>(M, t.lanes, t.keys, {v, 1, M}, {z, t.lanes}, {o + lane, block}, true);
  }

  // out is ours: the numbers of a row lie side by side.
  void finish(std::int64_t b, std::int64_t h, std::int64_t rows, const View<T, 4>& out,
              const View<T, 3>& log_sums) {
    const simd::Tag<T> d;
    const auto zero = hn::Zero(d);
    for (std::int64_t i = 0; i < block; i += simd::lanes<T>) {
      const auto total = hn::LoadU(d, sum + i);
      const auto empty = hn::Eq(total, zero);  // a sum of NaN is not, so that NaN goes on to out
      const auto log_sum =
          hn::MulAdd(hn::Set(d, ln2_v<T>), hn::LoadU(d, maximum + i), simd::log<T>(total));
      hn::StoreU(hn::IfThenElse(empty, hn::Inf(d), log_sum), d, maximum + i);
      const auto share = hn::IfThenElse(empty, zero, hn::Div(hn::Set(d, T(1)), total));
      for (std::int64_t m = 0; m < p.M(); ++m) {
        T* const at = o + m * block + i;
        hn::StoreU(hn::Mul(share, hn::LoadU(d, at)), d, at);
      }
    }
    for (std::int64_t i = 0; i < rows; ++i) log_sums(b, h, first + i) = maximum[i];
    transpose<T>(p.M(), rows, {o, block}, {&out(b, first, h, 0), out.stride(1)});
  }
};

}  // namespace

template <class Device, class T>
void FullKernels<Device, T>::forward(const Device&, const FullAttention<T>& p, View<T, 4> out,
                                     View<T, 3> log_sums) {
  const std::int64_t shares = (p.N() + forward_share - 1) / forward_share;
  const std::int64_t block = query_block(p);
  const std::int64_t rows_computed = simd::round_up_to_lanes<T>(std::min(p.N(), forward_share));
  const std::int64_t work = rows_computed * p.S() * (p.E() + p.M());
  parallel_for(p.B() * p.H() * shares, work, [&](std::int64_t piece) {
    const std::int64_t b = piece / shares / p.H(), h = piece / shares % p.H();
    const std::int64_t begin = piece % shares * forward_share;
    const std::int64_t end = std::min(p.N(), begin + forward_share);
    const std::int64_t counted = std::clamp(p.queries(b), begin, end);
    for (std::int64_t i = counted; i < end; ++i) {
      for (std::int64_t m = 0; m < p.M(); ++m) out(b, i, h, m) = 0;
      log_sums(b, h, i) = infinity<T>;
    }
    const std::int64_t keys = p.causal ? std::min(p.keys(b), counted) : p.keys(b);
    const Scratch<T> packed(keys * (p.E() + p.M()));
    T* const k = packed.data();
    T* const v = k + keys * p.E();
    pack_rows(p.k, b, h, 0, keys, T(1), k);
    pack_rows(p.v, b, h, 0, keys, T(1), v);
    ForwardBlock<T> state(p, block);
    for (std::int64_t i = begin; i < counted; i += block) {
      const std::int64_t rows = std::min(block, counted - i);
      const std::int64_t seen = p.causal ? std::min(keys, i + rows) : keys;
      state.start(b, h, i, rows);
      for (std::int64_t j = 0; j < seen; j += key_tile(p)) {
        const Tile<T> tile{b, h, i, rows, block, j, std::min(key_tile(p), seen - j)};
        each_part(p, tile, [&](const Tile<T>& part) { state.add(part, k, v); });
      }
      state.finish(b, h, rows, out, log_sums);
    }
  });
}

namespace {

// What backward keeps of all queries of one batch item and head, packed block by block.
template <class T>
struct PackedQueries {
  std::int64_t E, M, block, blocks, begin_count;
  Scratch<T> buffer;
  T *q, *dout, *q_turned, *dout_turned, *dq_turned, *log_sums, *delta, *out_turned;

  PackedQueries(const FullAttention<T>& p, std::int64_t query_block, std::int64_t rows)
      : E(p.E()),
        M(p.M()),
        block(query_block),
        blocks((rows + query_block - 1) / query_block),
        begin_count(rows),
        buffer(blocks * block * (3 * E + 2 * M + 2) + block * M) {
    const std::int64_t padded = blocks * block;
    q = buffer.data();
    dout = q + padded * E;
    q_turned = dout + padded * M;
    dout_turned = q_turned + padded * E;
    dq_turned = dout_turned + padded * M;
    log_sums = dq_turned + padded * E;
    delta = log_sums + padded;
    out_turned = delta + padded;  // of one block
  }

  void pack(const FullAttention<T>& p, std::int64_t b, std::int64_t h, const View<const T, 4>& out,
            const View<const T, 3>& row_log_sums, const View<const T, 4>& row_dout) {
    const std::int64_t rows = begin_count, padded = blocks * block;
    std::fill(q + rows * E, q + padded * E, T(0));
    std::fill(dout + rows * M, dout + padded * M, T(0));
    pack_rows(p.q, b, h, 0, rows, log2e_v<T> * p.temperature, q);
    pack_rows(row_dout, b, h, 0, rows, T(1), dout);
    for (std::int64_t i = 0; i < blocks; ++i) {
      transpose_block(q + i * block * E, block, E, block, q_turned + i * block * E);
      transpose_block(dout + i * block * M, block, M, block, dout_turned + i * block * M);
      find_delta(i, std::min(block, rows - i * block), &out(b, i * block, h, 0), out.stride(1));
    }
    std::fill(dq_turned, dq_turned + padded * E, T(0));
    for (std::int64_t i = 0; i < padded; ++i) {
      log_sums[i] = i < rows ? log2e_v<T> * row_log_sums(b, h, i) : infinity<T>;
    }
  }

  // δ of one block; out is ours: its heads are packed.
  void find_delta(std::int64_t i, std::int64_t rows, const T* out, std::int64_t row) {
    const simd::Tag<T> d;
    if (rows < block) std::fill(out_turned, out_turned + block * M, T(0));
    transpose<T>(rows, M, {out, row}, {out_turned, block});
    const T* const turned = dout_turned + i * block * M;
    for (std::int64_t lane = 0; lane < block; lane += simd::lanes<T>) {
      auto sum = hn::Zero(d);
      for (std::int64_t m = 0; m < M; ++m) {
        const std::int64_t at = m * block + lane;
        sum = hn::MulAdd(hn::LoadU(d, turned + at), hn::LoadU(d, out_turned + at), sum);
      }
      hn::StoreU(sum, d, delta + i * block + lane);
    }
  }

  // dq, from its transposed blocks; q is no longer needed.
  void unpack(std::int64_t b, std::int64_t h, T temperature, const View<T, 4>& dq) {
    for (std::int64_t i = 0; i < blocks; ++i) {
      transpose<T>(E, block, {dq_turned + i * block * E, block}, {q + i * block * E, E});
    }
    unpack_rows(q, b, h, 0, begin_count, dq, temperature);
  }
};

// Backward for one tile of keys: streams over the blocks of queries.
template <class T>
struct BackwardTile {
  const FullAttention<T>& p;
  PackedQueries<T>& queries;
  std::int64_t first = 0;  // key
  Scratch<T> buffer;
  T *k, *v, *dk, *dv, *a, *dz;

  BackwardTile(const FullAttention<T>& problem, PackedQueries<T>& packed)
      : p(problem),
        queries(packed),
        buffer(key_tile(problem) * 2 * (problem.E() + problem.M() + packed.block)) {
    const std::int64_t most = key_tile(p);
    k = buffer.data();
    v = k + most * p.E();
    dk = v + most * p.M();
    dv = dk + most * p.E();
    a = dv + most * p.M();
    dz = a + most * packed.block;
  }

  void start(std::int64_t b, std::int64_t h, std::int64_t key, std::int64_t keys) {
    first = key;
    pack_rows(p.k, b, h, key, keys, T(1), k);
    pack_rows(p.v, b, h, key, keys, T(1), v);
    std::fill(dk, dk + keys * p.E(), T(0));
    std::fill(dv, dv + keys * p.M(), T(0));
  }

  void add(const Tile<T>& t, const View<T, 4>& dbias) {
    const std::int64_t E = p.E(), M = p.M(), n = t.lanes, key = t.key - first;
    is_narrow(p) ? find_narrow(t) : find(t);
    for (std::int64_t i = 0, j = 0; i < n && j < t.keys; i += simd::lanes<T>) {
      // Keys from j on, which the vectors before i do not see.
      const std::int64_t seen = is_narrow(p) ? keys_seen(p, t, i) : t.keys, at = j * n + i;
      tile_product<T>(seen - j, M, n - i, {a + at, n, 1}, {queries.dout + (t.query + i) * M, M},
                      {dv + (key + j) * M, M}, true);
      tile_product<T>(seen - j, E, n - i, {dz + at, n, 1}, {queries.q + (t.query + i) * E, E},
                      {dk + (key + j) * E, E}, true);
      j = seen;
    }
    if (dbias.data == nullptr) return;
    for (std::int64_t j = 0; j < t.keys; ++j) {
      for (std::int64_t i = 0; i < t.queries; ++i) {
        dbias(t.b, t.h, t.query + i, t.key + j) = dz[j * t.lanes + i];
      }
    }
  }

  // a and dz of the tile, and what its keys add to dq.
  void find(const Tile<T>& t) {
    const std::int64_t E = p.E(), M = p.M(), block = queries.block, n = t.lanes;
    const std::int64_t lane = t.query % block, row = t.query - lane, key = t.key - first;
    const T *const keys = k + key * E, *const values = v + key * M;
    tile_product<T>(t.keys, n, E, {keys, E, 1}, {queries.q_turned + row * E + lane, block}, {a, n},
                    false);
    mask_scores(p, t, a);
    tile_product<T>(t.keys, n, M, {values, M, 1}, {queries.dout_turned + row * M + lane, block},
                    {dz, n}, false);
    if (p.dropout > 0) {
      differentiate_dropped(t);
    } else {
      differentiate(t);
    }
    tile_product<T>(E, n, t.keys, {keys, 1, E}, {dz, n},
                    {queries.dq_turned + row * E + lane, block}, true);
  }

  // The same by narrow.h.
  void find_narrow(const Tile<T>& t) {
    constexpr std::int64_t width = narrow::width;
    const std::int64_t block = queries.block, n = t.lanes, key = t.key - first;
    const std::int64_t at = t.query / block * block * width + t.query % block;
    const auto run = [&](std::int64_t i, const narrow::Keys<T>& keys, auto left) {
      const std::int64_t to = at + i;
      narrow::backward<T>(keys, left, {queries.q_turned + to, block},
                          {queries.dout_turned + to, block}, queries.log_sums + t.query + i,
                          queries.delta + t.query + i, {a + i, n}, {dz + i, n},
                          {queries.dq_turned + to, block});
    };
    each_narrow(p, t, k + key * width, v + key * width, run);
  }

  // a holds z, dz holds do · v: they become a and dz.
  void differentiate(const Tile<T>& t) {
    const simd::Tag<T> d;
    for (std::int64_t i = 0; i < t.lanes; i += simd::lanes<T>) {
      const auto log_sum = hn::LoadU(d, queries.log_sums + t.query + i);
      const auto delta = hn::LoadU(d, queries.delta + t.query + i);
      for (std::int64_t j = 0; j < t.keys; ++j) {
        T* const weight_at = a + j * t.lanes + i;
        T* const gradient_at = dz + j * t.lanes + i;
        const auto weight = simd::exp2<T>(hn::Sub(hn::LoadU(d, weight_at), log_sum));
        hn::StoreU(weight, d, weight_at);
        hn::StoreU(hn::Mul(weight, hn::Sub(hn::LoadU(d, gradient_at), delta)), d, gradient_at);
      }
    }
  }

  // The same with dropout: a becomes d ⊙ a, and do · v counts where the weight was kept.
  void differentiate_dropped(const Tile<T>& t) {
    const simd::Tag<T> d;
    const auto scale = hn::Set(d, static_cast<T>(mask_of(p).factor));
    each_weight(p, t, [&](std::int64_t j, std::int64_t i, auto kept) {
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

template <class Device, class T>
void FullBackwardKernels<Device, T>::backward(const Device&, const FullAttention<T>& p,
                                              View<const T, 4> out, View<const T, 3> log_sums,
                                              View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk,
                                              View<T, 4> dv, View<T, 4> dbias) {
  parallel_for(p.B() * p.H(), [&](std::int64_t piece) {
    const std::int64_t b = piece / p.H(), h = piece % p.H();
    const std::int64_t counted = std::min(p.queries(b), p.N());
    const std::int64_t keys = p.causal ? std::min(p.keys(b), counted) : p.keys(b);
    clear_rows(dq, b, h, counted);
    clear_rows(dk, b, h, keys);
    clear_rows(dv, b, h, keys);
    if (dbias.data != nullptr) {
      for (std::int64_t i = 0; i < p.N(); ++i) {
        for (std::int64_t j = 0; j < p.S(); ++j) dbias(b, h, i, j) = 0;
      }
    }
    const std::int64_t block = query_block(p);
    PackedQueries<T> queries(p, block, counted);
    queries.pack(p, b, h, out, log_sums, dout);
    BackwardTile<T> tile(p, queries);
    for (std::int64_t j = 0; j < keys; j += key_tile(p)) {
      const std::int64_t size = std::min(key_tile(p), keys - j);
      tile.start(b, h, j, size);
      for (std::int64_t i = p.causal ? j / block * block : 0; i < counted; i += block) {
        const std::int64_t rows = std::min(block, counted - i);
        const std::int64_t seen = p.causal ? std::min(size, i + rows - j) : size;
        each_part(p, Tile<T>{b, h, i, rows, block, j, seen},
                  [&](const Tile<T>& part) { tile.add(part, dbias); });
      }
      unpack_rows(tile.dk, b, h, j, size, dk, ln2_v<T>);
      unpack_rows(tile.dv, b, h, j, size, dv);
    }
    queries.unpack(b, h, p.temperature, dq);
  });
}

template struct FullKernels<Cpu, float>;
template struct FullKernels<Cpu, double>;
template struct FullBackwardKernels<Cpu, float>;
template struct FullBackwardKernels<Cpu, double>;

}  // namespace weft
