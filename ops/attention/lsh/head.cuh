// A block of LSH attention's CUDA kernels: up to 32 ranks of a list, as queries or as keys, and the
// ranks that these see or that see them. The rules of lsh.h for a tile of pairs are implemented
// here once.
#pragma once

#include "ops/attention/infinity.h"
#include "ops/attention/lsh/tiles.cuh"
#include "ops/attention/lsh/work.cuh"

namespace weft {
namespace lsh_detail {

template <class T>
struct LshOperands : Operands<T> {  // own and other hold positions
  Weights<T> weights;
  std::int32_t own_chunk[owned_rows], other_chunk[streamed_rows];
};

// Ranks begin … end − 1 of a list that are streamed, and the round of the queries. In a ring the
// keys are those of the list of the round before.
struct LshPart {
  std::int32_t round;
  const std::int32_t* list;
  std::int32_t begin, end;
  bool ring;
};

// Bit k: whether the weight at place first + k of a row is kept, for k = 0 … 3.
__device__ __forceinline__ unsigned kept_of_four(const DropoutMask& mask, i64 row,
                                                 std::int32_t first) {
  const unsigned offset = static_cast<unsigned>(first & 7);
  const std::int32_t begin = first - static_cast<std::int32_t>(offset);
  unsigned kept = mask.keeps_eight(row, begin);
  if (offset > 4) kept |= mask.keeps_eight(row, begin + DropoutMask::pieces) << 8;
  return kept >> offset & 15;
}

// 1 / |q| of a position, by a team of threads.
template <class T, class Team>
__device__ void keep_inverse_norm(const LshWork<T>& w, const Team& team, i64 b,
                                  i64 n, i64 h) {
  T part = 0;
  for (i64 e = team.rank(); e < w.p.E(); e += Team::threads) {
    const T x = w.p.q(b, n, h, e);
    part += x * x;
  }
  const T norm = std::sqrt(team.sum(part));
  const T inverse = !w.p.rules.normalize ? T(1) : norm == 0 ? T(0) : 1 / norm;
  if (team.rank() == 0) w.inverse_norms[(b * w.p.H() + h) * w.p.N() + n] = inverse;
}

// `queries`: the block owns queries and streams keys; otherwise the other way round.
template <class T, bool queries>
struct LshBlock {
  const LshWork<T>& w;
  LshOperands<T>& shared;
  const std::int32_t round, c;  // ranks, chunks and rounds are below 2^24
  i64 piece = 0;
  std::int32_t b = 0, h = 0, length = 0;
  std::int32_t rank = 0, rows = 0;                         // owned
  std::int32_t first_chunk = 0, last_chunk = 0, last = 0;  // of those, and of the list

  __device__ LshBlock(const LshWork<T>& work, LshOperands<T>& tile, std::int32_t of_round)
      : w(work), shared(tile), round(of_round), c(static_cast<std::int32_t>(work.chunk())) {}

  // Sets the rows that the block owns; false if there are none, for all threads alike.
  __device__ __forceinline__ bool take(i64 item) {
    const auto run_size = static_cast<std::int32_t>(w.run());
    const auto tile = static_cast<std::int32_t>(item % w.tiles());
    const auto begin = static_cast<std::int32_t>(item / w.tiles() % w.runs() * run_size);
    piece = item / w.tiles() / w.runs();
    b = static_cast<std::int32_t>(piece / w.p.H());
    h = static_cast<std::int32_t>(piece % w.p.H());
    length = static_cast<std::int32_t>(w.p.length(b));
    rank = begin + tile * owned_rows;
    const std::int32_t end = begin + run_size < length ? begin + run_size : length;
    rows = end - rank < owned_rows ? end - rank : owned_rows;
    if (rows <= 0) return false;
    first_chunk = rank / c;
    last_chunk = (rank + rows - 1) / c;
    last = (length - 1) / c;
    __syncthreads();  // the previous item has been processed
    for (int i = static_cast<int>(threadIdx.x); i < owned_rows; i += tile_threads) {
      shared.own[i] = i < rows ? list(round)[rank + i] : -1;
      shared.own_chunk[i] = (rank + i) / c;
    }
    __syncthreads();
    return true;
  }

  __device__ bool idle() const { return idle_warp(rows); }

  // Position of an owned row of this thread; −1: none.
  __device__ std::int32_t own(int i) const { return shared.own[own_group() * 4 + i]; }
  __device__ std::int32_t other(int j) const { return shared.other[other_group() * 4 + j]; }
  __device__ std::int32_t query(int i, int j) const { return queries ? own(i) : other(j); }
  __device__ std::int32_t key(int i, int j) const { return queries ? other(j) : own(i); }

  // The streamed ranks for the owned rows: keys of their chunks and of the one before, or queries
  // of their chunks and of the one after; and the ranks that the ring adds.
  __device__ __forceinline__ LshPart part(bool ring) const {
    const auto R = static_cast<std::int32_t>(w.p.rules.rounds);
    if (ring) {
      const bool any = w.p.rules.wrap && (queries ? first_chunk == 0 : last_chunk == last);
      if (!any) return {0, nullptr, 0, 0, true};
      if (queries) return {round, list((round + R - 1) % R), last * c, length, true};
      const std::int32_t next = (round + 1) % R;
      return {next, list(next), 0, c < length ? c : length, true};
    }
    const std::int32_t from = queries && first_chunk > 0 ? first_chunk - 1 : first_chunk;
    const std::int32_t behind = queries ? last_chunk : last_chunk + 1;  // its last chunk
    return {round, list(round), from * c, behind < last ? (behind + 1) * c : length, false};
  }

  // Whether all streamed ranks fit in one tile.
  __device__ __forceinline__ bool single() const {
    const LshPart ring = part(true), plain = part(false);
    return ring.end == ring.begin && plain.end - plain.begin <= streamed_rows;
  }

  // Calls f(part, first rank of the tile).
  template <class F>
  __device__ __forceinline__ void each_tile(const F& f) const {
#pragma unroll 1
    for (int ring = 1; ring >= 0; --ring) {
      const LshPart of = part(ring == 1);
#pragma unroll 1
      for (std::int32_t first = of.begin; first < of.end; first += streamed_rows) f(of, first);
    }
  }

  // Loads the positions of a tile of streamed ranks.
  __device__ __forceinline__ void stream(const LshPart& of, std::int32_t first) const {
    __syncthreads();  // the previous tile has been processed
    for (int j = static_cast<int>(threadIdx.x); j < streamed_rows; j += tile_threads) {
      const bool exists = first + j < of.end;
      shared.other[j] = exists ? of.list[first + j] : -1;
      shared.other_chunk[j] = (first + j) / c;
    }
  }

  __device__ Rows<T> query_rows() const {
    return {&w.p.q(b, 0, h, 0), w.p.q.stride(1), w.p.q.stride(3), w.p.E(), w.p.temperature};
  }
  __device__ Rows<T> key_rows() const {
    const T* const norms = w.inverse_norms + piece * w.p.N();
    return {&w.p.q(b, 0, h, 0), w.p.q.stride(1), w.p.q.stride(3), w.p.E(), T(1), norms};
  }
  __device__ Rows<T> values() const {
    return {&w.p.v(b, 0, h, 0), w.p.v.stride(1), w.p.v.stride(3), w.p.M()};
  }

  // z of this thread's pairs, −∞ if the query does not see the key. Bit 4 i + j of the result: the
  // pair is a query and its own key, and self=last made z a constant.
  __device__ __forceinline__ unsigned score(const LshPart& of, T (&z)[4][4]) const {
    const LshRules& rules = w.p.rules;
    clear(z);
    add_products(shared, rows, queries ? query_rows() : key_rows(),
                 queries ? key_rows() : query_rows(), z);
    unsigned selfs = 0;
    if (idle()) return selfs;
    if (rules.self == LshSelf::last) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (own(i) != other(j)) continue;
          selfs |= 1u << (4 * i + j);
          z[i][j] = 0;
        }
      }
    }
    if (rules.correct) subtract_counts(z);
    const std::int32_t* const bucket = w.p.buckets_of(of.round, b, h);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::int32_t q = query(i, j), k = key(i, j);
        bool seen = q >= 0 && k >= 0 && in_place(of, i, j);
        if (w.p.causal) seen = seen && k <= q;
        if (rules.self == LshSelf::exclude) seen = seen && k != q;
        if (!rules.across_buckets) seen = seen && bucket[k] == bucket[q];
        if (!seen) z[i][j] = -infinity<T>;
      }
    }
    return selfs;
  }

  // Bit 4 i + j: dropout keeps the weight of the pair. Consecutive ranks are at consecutive places
  // of a query.
  __device__ __forceinline__ unsigned kept(const LshPart& of, std::int32_t first) const {
    const std::int32_t lead = w.p.rules.wrap ? length - last * c : 0;  // look-back of chunk 0
    const i64 row = (piece * w.p.rules.rounds + of.round) * w.p.N();
    const std::int32_t own_rank = rank + own_group() * 4, other_rank = first + other_group() * 4;
    unsigned all = 0;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const std::int32_t chunk = queries ? shared.own_chunk[own_group() * 4 + n]
                                         : shared.other_chunk[other_group() * 4 + n];
      const std::int32_t begin = of.ring ? last * c : chunk == 0 ? -lead : (chunk - 1) * c;
      const unsigned four = kept_of_four(w.mask, row + (queries ? own_rank : other_rank) + n,
                                         (queries ? other_rank : own_rank) - begin);
#pragma unroll
      for (int k = 0; k < 4; ++k) all |= (four >> k & 1) << (queries ? 4 * n + k : 4 * k + n);
    }
    return all;
  }

  // x ← d ⊙ x, with d from kept().
  __device__ __forceinline__ void drop(unsigned all, T (&x)[4][4]) const {
    const T factor = static_cast<T>(w.mask.factor);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) x[i][j] = all >> (4 * i + j) & 1 ? factor * x[i][j] : T(0);
    }
  }

 private:
  __device__ const std::int32_t* list(std::int32_t r) const {
    return w.lists + ((r * w.p.B() + b) * w.p.H() + h) * w.p.N();
  }
  __device__ const std::int32_t* chunks_of(std::int32_t r) const {
    return w.chunks + ((r * w.p.B() + b) * w.p.H() + h) * w.p.N();
  }

  // Whether the key is in the query's chunk, or in the one before it.
  __device__ __forceinline__ bool in_place(const LshPart& of, int i, int j) const {
    const std::int32_t own_chunk = shared.own_chunk[own_group() * 4 + i];
    const std::int32_t other_chunk = shared.other_chunk[other_group() * 4 + j];
    const std::int32_t query = queries ? own_chunk : other_chunk;
    const std::int32_t key = queries ? other_chunk : own_chunk;
    return of.ring ? query == 0 && key == last : query == key || query == key + 1;
  }

  // z ← z − log n, n: the number of places of all rounds where the query sees the key.
  __device__ __forceinline__ void subtract_counts(T (&z)[4][4]) const {
    const auto R = static_cast<std::int32_t>(w.p.rules.rounds);
    int count[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) count[i][j] = 0;
    }
#pragma unroll 1
    for (std::int32_t s = 0; s < R; ++s) {
      const std::int32_t *const chunk = chunks_of(s), *const before = chunks_of((s + R - 1) % R);
      const std::int32_t* const bucket = w.p.buckets_of(s, b, h);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const std::int32_t q = query(i, j), k = key(i, j);
          if (q < 0 || k < 0 || (!w.p.rules.across_buckets && bucket[q] != bucket[k])) continue;
          count[i][j] += chunk[q] == chunk[k] || chunk[q] == chunk[k] + 1;
          count[i][j] += w.p.rules.wrap && chunk[q] == 0 && before[k] == last;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (count[i][j] > 1) z[i][j] -= std::log(static_cast<T>(count[i][j]));
      }
    }
  }
};

}  // namespace lsh_detail
}  // namespace weft
