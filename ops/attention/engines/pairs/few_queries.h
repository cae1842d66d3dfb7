// Pairs of a few queries with many keys, as in decoding, forward on the CPU; the equations are in
// pairs.h.
//
// Each key and value is read once. A tile of keys is transposed, so that lanes hold the scores of
// adjacent keys; for values a vector holds contiguous numbers of one row. Lanes do not hold
// queries, which are too few to fill them. The keys are split into chunks, by their number alone,
// and every chunk computes a maximum, a sum and an output for each query, for all heads, whose rows
// are adjacent in memory. Chunks are merged in order, as tiles are. Scores are in units of ln 2.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/attention/engines/pairs/pairs.h"
#include "ops/attention/infinity.h"
#include "ops/attention/rows.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"
#include "runtime/simd.h"
#include "runtime/transpose.h"

namespace weft::few {

inline constexpr i64 most_queries = 4;
inline constexpr i64 chunk_keys = 1024, tile_keys = 64;

template <class S>
bool possible(const Pairs<S>& p) {
  return p.N() <= most_queries && p.classes == 1 && !p.lists.any() && p.dropout == 0 &&
         p.k.stride(3) == 1 && p.v.stride(3) == 1;
}

// o [M] ← scale o + Σ_j w_j v_j, for `count` rows of v.
template <class T>
void add_weighted(const T* w, i64 count, Rows<const T> v, i64 M, T scale, T* o) {
  namespace hn = simd::hn;
  constexpr i64 lanes = simd::lanes<T>;
  const simd::Tag<T> d;
  const auto columns = [&]<int vectors>(i64 m) {  // all but the last vector are whole
    simd::Vector<T> sum[vectors];
    for (int c = 0; c < vectors; ++c) {
      sum[c] = hn::Mul(hn::Set(d, scale), simd::load(o + m + c * lanes, M - m - c * lanes));
    }
    for (i64 j = 0; j < count; ++j) {
      const T* const row = v.data + j * v.row + m;
      for (int c = 0; c < vectors; ++c) {
        sum[c] =
            hn::MulAdd(hn::Set(d, w[j]), simd::load(row + c * lanes, M - m - c * lanes), sum[c]);
      }
    }
    for (int c = 0; c < vectors; ++c) {
      simd::store<T>(sum[c], o + m + c * lanes, M - m - c * lanes);
    }
  };
  i64 m = 0;
  for (; m + 3 * lanes < M; m += 4 * lanes) columns.template operator()<4>(m);
  for (; m < M; m += lanes) columns.template operator()<1>(m);
}

// The result of some keys for one query: o [M] is not yet divided by the sum.
template <class T>
struct Partial {
  T maximum, sum, *o;

  static i64 numbers(i64 M) { return M + 2; }

  // z [count]: the scores of keys with values v; they are replaced by weights.
  void add(T* z, i64 count, Rows<const T> v, i64 M) {
    namespace hn = simd::hn;
    constexpr i64 lanes = simd::lanes<T>;
    const simd::Tag<T> d;
    constexpr T none = -infinity<T>;
    const i64 padded = simd::round_up_to_lanes<T>(count);
    std::fill(z + count, z + padded, none);
    auto most = hn::Set(d, maximum);
    for (i64 j = 0; j < padded; j += lanes) most = hn::Max(most, hn::LoadU(d, z + j));
    const T now = hn::GetLane(hn::MaxOfLanes(d, most)), shift = now == none ? T(0) : now;
    auto total = hn::Zero(d);
    for (i64 j = 0; j < padded; j += lanes) {
      const auto weight = simd::exp2<T>(hn::Sub(hn::LoadU(d, z + j), hn::Set(d, shift)));
      total = hn::Add(total, weight);
      hn::StoreU(weight, d, z + j);
    }
    const T correction = std::exp2(maximum - shift);
    sum = sum * correction + simd::sum_of_lanes<T>(total);
    maximum = now;
    add_weighted(z, count, v, M, correction, o);
  }
};

// z [count] of one query: its products with transposed keys, [E, tile_keys].
template <class T>
void find_products(const T* q, i64 E, const T* keys, i64 count, T* z) {
  namespace hn = simd::hn;
  const simd::Tag<T> d;
  for (i64 j = 0; j < count; j += simd::lanes<T>) {
    auto sum = hn::Zero(d), other = hn::Zero(d);  // two accumulators halve the latency chain
    i64 e = 0;
    for (; e + 1 < E; e += 2) {
      sum = hn::MulAdd(hn::Set(d, q[e]), hn::LoadU(d, keys + e * tile_keys + j), sum);
      other = hn::MulAdd(hn::Set(d, q[e + 1]), hn::LoadU(d, keys + (e + 1) * tile_keys + j), other);
    }
    if (e < E) sum = hn::MulAdd(hn::Set(d, q[e]), hn::LoadU(d, keys + e * tile_keys + j), sum);
    hn::StoreU(hn::Add(sum, other), d, z + j);
  }
}

// Prefetches one head's part of a tile of keys.
template <class S>
void prefetch_tile(const Pairs<S>& p, i64 b, i64 h, i64 key, i64 end) {
  for (i64 j = key; j < std::min(key + tile_keys, end); ++j) {
    prefetch(&p.k(b, j, h, 0), p.E());
    prefetch(&p.v(b, j, h, 0), p.M());
  }
}

// The partial results of one chunk, for all heads and queries: `state` [H, counted, M + 2]; q [H,
// counted, E] is packed.
template <class S, class T = Accumulator<S>>
void add_chunk(const Pairs<S>& p, i64 b, i64 counted, const T* q, i64 begin, i64 end, T* state) {
  constexpr T none = -infinity<T>;
  constexpr T most = std::numeric_limits<T>::max() / 2;  // times log₂e it is finite
  const i64 numbers = Partial<T>::numbers(p.M());
  constexpr bool in_place = std::is_same_v<S, T>;
  const Scratch<T> widened(in_place ? 0 : tile_keys * (p.E() + p.M()));
  T *const wide_keys = widened.data(), *const wide_values = wide_keys + tile_keys * p.E();
  std::array<T, tile_keys + simd::lanes<T>> z;
  const Scratch<T> turned(p.E() * tile_keys + simd::lanes<T>);  // read beyond the last key
  std::fill(state, state + p.H() * counted * numbers, T(0));
  for (i64 row = 0; row < p.H() * counted; ++row) state[row * numbers] = none;
  begin = std::max(begin, p.band.first.at(0));
  end = counted == 0 ? begin : std::min(end, p.band.end.at(counted - 1));
  for (i64 key = begin; key < end; key += tile_keys) {
    for (i64 h = 0; h < p.H(); ++h) {
      const bool last = h + 1 == p.H();
      prefetch_tile(p, b, last ? 0 : h + 1, last ? key + tile_keys : key, end);
      const i64 keys = std::min(tile_keys, end - key);
      Rows<const T> v;  // from `key` on
      if constexpr (in_place) {
        transpose<T>(keys, p.E(), {&p.k(b, key, h, 0), p.k.stride(1)}, {turned.data(), tile_keys});
        v = {&p.v(b, key, h, 0), p.v.stride(1)};
      } else {
        pack_rows(p.k, b, h, key, keys, T(1), wide_keys);
        pack_rows(p.v, b, h, key, keys, T(1), wide_values);
        transpose<T>(keys, p.E(), {wide_keys, p.E()}, {turned.data(), tile_keys});
        v = {wide_values, p.M()};
      }
      for (i64 i = 0; i < counted; ++i) {
        const i64 from = std::max(key, p.band.first.at(i)), row = h * counted + i;
        const i64 count = std::min({key + tile_keys, end, p.band.end.at(i)}) - from;
        if (count <= 0) continue;
        find_products(q + row * p.E(), p.E(), turned.data() + from - key, count, z.data());
        for (i64 j = 0; p.bias.data != nullptr && j < count; ++j) {
          const T bias = p.bias(b, h, i, from + j);
          z[j] +=
              std::numbers::log2e_v<T> * (std::isinf(bias) ? bias : std::clamp(bias, -most, most));
        }
        T* const at = state + row * numbers;
        Partial<T> partial{at[0], at[1], at + 2};
        partial.add(z.data(), count, {v.data + (from - key) * v.row, v.row}, p.M());
        at[0] = partial.maximum, at[1] = partial.sum;
      }
    }
  }
}

// Merges out and ℓ of query i of head h from the chunks' results, `apart` numbers apart, and, if
// `before` has data, from other parts.
template <class S, class T = Accumulator<S>>
void join(const Pairs<S>& p, i64 b, i64 h, i64 i, const T* state, i64 chunks, i64 apart,
          const View<const Accumulator<S>, 3>& before, const View<S, 4>& out,
          const View<Accumulator<S>, 3>& log_sums, T* o) {
  const bool goes_on = before.data != nullptr && before(b, h, i) != infinity<T>;
  const T first = goes_on ? std::numbers::log2e_v<T> * before(b, h, i) : -infinity<T>;
  T most = first;
  for (i64 c = 0; c < chunks; ++c) most = std::max(most, state[c * apart]);
  const T shift = most == -infinity<T> ? T(0) : most;
  T sum = goes_on ? std::exp2(first - shift) : T(0);
  for (i64 m = 0; m < p.M(); ++m) o[m] = goes_on ? convert<T>(out(b, i, h, m)) * sum : T(0);
  for (i64 c = 0; c < chunks; ++c) {
    const T factor = std::exp2(state[c * apart] - shift);
    sum += factor * state[c * apart + 1];
    for (i64 m = 0; m < p.M(); ++m) o[m] += factor * state[c * apart + 2 + m];
  }
  for (i64 m = 0; m < p.M(); ++m) out(b, i, h, m) = convert<S>(sum == 0 ? T(0) : o[m] / sum);
  log_sums(b, h, i) = sum == 0 ? infinity<T> : std::numbers::ln2_v<T> * most + std::log(sum);
}

// PairsKernels::forward() if it is possible().
template <class S, class T = Accumulator<S>>
void forward(const Pairs<S>& p, const View<const Accumulator<S>, 3>& before, const View<S, 4>& out,
             const View<Accumulator<S>, 3>& log_sums) {
  const i64 H = p.H(), N = p.N(), numbers = Partial<T>::numbers(p.M());
  const i64 chunks = (p.S() + chunk_keys - 1) / chunk_keys;
  const Scratch<T> queries(p.B() * H * N * p.E());
  const Scratch<T> states(p.B() * chunks * H * N * numbers), row(p.M());
  for (i64 b = 0; b < p.B(); ++b) {
    const i64 counted = p.queries(b);
    for (i64 h = 0; h < H; ++h) {
      pack_rows(p.q, b, h, 0, counted, std::numbers::log2e_v<T> * p.temperature,
                queries.data() + (b * H * N + h * counted) * p.E());
    }
  }
  const i64 work = H * N * std::min(p.S(), chunk_keys) * (p.E() + p.M());
  parallel_for(p.B() * chunks, work, [&](i64 piece) {
    const i64 b = piece / chunks, begin = piece % chunks * chunk_keys;
    const i64 end = std::min(p.keys(b), begin + chunk_keys);
    add_chunk(p, b, p.queries(b), queries.data() + b * H * N * p.E(), begin, end,
              states.data() + piece * H * N * numbers);
  });
  for (i64 b = 0; b < p.B(); ++b) {
    const i64 counted = p.queries(b);
    for (i64 h = 0; h < H; ++h) {
      for (i64 i = 0; i < N; ++i) {
        if (i < counted) {
          const T* const state = states.data() + (b * chunks * H * N + h * counted + i) * numbers;
          join(p, b, h, i, state, chunks, H * N * numbers, before, out, log_sums, row.data());
          continue;
        }
        for (i64 m = 0; m < p.M(); ++m) out(b, i, h, m) = S();
        log_sums(b, h, i) = infinity<T>;
      }
    }
  }
}

}  // namespace weft::few
