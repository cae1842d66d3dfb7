// CPU kernels of LSH attention; the equations are in lsh.h. A task is a head of a batch item: all
// its rounds, tile by tile (rounds.h), with queries in the lanes.
#include "ops/attention/lsh/lsh.h"

#include "ops/attention/infinity.h"
#include "ops/attention/lsh/rounds.h"
#include "runtime/error.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

namespace hn = simd::hn;
using lsh_detail::LshRounds;
using lsh_detail::LshTile;
using lsh_detail::lsh_block;

constexpr i64 hashed_rows = 64;

// The index of the largest of x and −x; the lowest at ties.
template <class T>
std::int32_t signed_argmax(const T* x, i64 count) {
  T best = x[0];
  i64 at = 0;
  for (i64 k = 1; k < count; ++k) {
    if (x[k] > best) best = x[k], at = k;
  }
  for (i64 k = 0; k < count; ++k) {
    if (-x[k] > best) best = -x[k], at = count + k;
  }
  return static_cast<std::int32_t>(at);
}

}  // namespace

template <class Device, class T>
void LshHashKernels<Device, T>::hash(const Device&, const Lsh<T>& p, const T* planes,
                                     std::int32_t* buckets) {
  const i64 E = p.E(), half = p.rules.buckets / 2, all = p.rules.rounds * half;
  const Scratch<T> turned(E * all);
  transpose_block(planes, all, E, all, turned.data());
  parallel_for(p.B() * p.H(), [&](i64 piece) {
    const i64 b = piece / p.H(), h = piece % p.H(), N = p.length(b);
    const Scratch<T> buffer(hashed_rows * (E + all));
    T* const x = buffer.data();
    T* const heights = x + hashed_rows * E;
    const auto place = [&](i64 r) { return buckets + ((r * p.B() + b) * p.H() + h) * p.N(); };
    for (i64 i = 0; i < N; i += hashed_rows) {
      const i64 rows = std::min(hashed_rows, N - i);
      pack_rows(p.q, b, h, i, rows, T(1), x);
      tile_product<T>(rows, all, E, {x, E, 1}, {turned.data(), all}, {heights, all}, false);
      for (i64 r = 0; r < p.rules.rounds; ++r) {
        for (i64 n = 0; n < rows; ++n) {
          place(r)[i + n] = signed_argmax(heights + n * all + r * half, half);
        }
      }
    }
    for (i64 r = 0; r < p.rules.rounds; ++r) std::fill(place(r) + N, place(r) + p.N(), 0);
  });
}

namespace {

// Forward of one head.
template <class T>
struct Forward {
  LshRounds<T> rounds;
  const Lsh<T>& p;
  const i64 N, M, block;
  Scratch<T> buffer;
  T *out, *log_sums, *others;  // [N, M], [N], [N]: 1 if a position saw any but itself
  T *o, *maximum, *sum;        // [M, block], [block], [block]

  Forward(const Lsh<T>& problem, i64 piece)
      : rounds(problem, piece),
        p(problem),
        N(rounds.N),
        M(p.M()),
        block(rounds.block),
        buffer(p.N() * (M + 2) + block * (M + 2)) {
    out = buffer.data();
    log_sums = out + N * M;
    others = log_sums + N;
    o = others + N;
    maximum = o + M * block;
    sum = maximum + block;
    std::fill(out, out + N * M, T(0));
    std::fill(log_sums, log_sums + N, -infinity<T>);
    std::fill(others, others + N, T(0));
  }

  void add(const LshTile& t) {
    rounds.score(t);
    exponentiate(t.keys);
    if (p.dropout > 0) {
      const auto factor = hn::Set(simd::Tag<T>{}, rounds.kept_factor());
      rounds.each_weight(t, [&](i64 j, i64 i, auto kept) {
        T* const at = rounds.scores + j * block + i;
        const simd::Tag<T> d;
        hn::StoreU(hn::IfThenElseZero(kept, hn::Mul(factor, hn::LoadU(d, at))), d, at);
      });
    }
    tile_product<T>(M, block, t.keys, {rounds.values + t.row * M, 1, M}, {rounds.scores, block},
                    {o, block}, false);
  }

  void exponentiate(i64 keys) {
    const simd::Tag<T> d;
    for (i64 i = 0; i < block; i += simd::lanes<T>) {
      T* const z = rounds.scores + i;
      auto most = hn::Set(d, -infinity<T>);
      for (i64 j = 0; j < keys; ++j) most = hn::Max(most, hn::LoadU(d, z + j * block));
      // A query that sees nothing has scores of −∞, which give 0.
      const auto shift = hn::IfThenElse(hn::Eq(most, hn::Set(d, -infinity<T>)), hn::Zero(d), most);
      auto total = hn::Zero(d);
      for (i64 j = 0; j < keys; ++j) {
        const auto weight = simd::exp<T>(hn::Sub(hn::LoadU(d, z + j * block), shift));
        total = hn::Add(total, weight);
        hn::StoreU(weight, d, z + j * block);
      }
      hn::StoreU(most, d, maximum + i);
      hn::StoreU(total, d, sum + i);
    }
  }

  // Adds the results of the tile's queries to their positions.
  void combine(const LshTile& t, const View<T, 4>& kept_log_sums) {
    for (i64 i = 0; i < t.queries; ++i) {
      const i64 n = rounds.position(t, i);
      const bool empty = sum[i] == 0;  // a sum of NaN is not 0, so NaN is propagated
      const T log_sum = maximum[i] + std::log(sum[i]);
      T before = 1, share = empty ? T(0) : 1 / (sum[i] * T(p.rules.rounds));
      if (p.rules.marks_others()) {  // others, in any round, override the own key
        if (rounds.alone[i] == 1 && others[n] == 1) continue;
        if (rounds.alone[i] == 0 && others[n] == 0) log_sums[n] = -infinity<T>;
        others[n] = 1 - rounds.alone[i];
      }
      if (!p.rules.logsumexp) {
        kept_log_sums(rounds.b, rounds.h, rounds.round, n) = empty ? infinity<T> : log_sum;
      } else if (!empty) {
        const T most = std::max(log_sums[n], log_sum);
        const T all = most + std::log(std::exp(log_sums[n] - most) + std::exp(log_sum - most));
        before = std::exp(log_sums[n] - all);
        share = std::exp(log_sum - all) / sum[i];
        log_sums[n] = all;
      }
      if (empty) continue;
      T* const row = out + n * M;
      for (i64 m = 0; m < M; ++m) row[m] = before * row[m] + share * o[m * block + i];
    }
  }
};

// Backward of one head.
template <class T>
struct Backward {
  LshRounds<T> rounds;
  const Lsh<T>& p;
  const i64 N, E, M, block;
  Scratch<T> buffer;
  T *dout, *dq, *dk, *dv;                // [N, …]
  T *delta, *log_sums, *others;          // [N]
  T *dkeys, *dvalues;                    // in the order of the list
  T *dz, *dout_turned, *dq_turned;       // of a tile: lanes hold queries
  T *q_rows, *dout_rows, *own;           // [block, …] of its queries; two numbers of each

  static i64 elements(const Lsh<T>& p) {
    const i64 E = p.E(), M = p.M(), c = p.chunk(p.N());
    return p.N() * (2 * E + 2 * M + 3) + LshRounds<T>::rows(p) * (E + M) +
           lsh_block(c) * (2 * c + 2 * M + 2 * E + 2);
  }

  Backward(const Lsh<T>& problem, i64 piece, const View<const T, 4>& out,
           const View<const T, 4>& row_dout)
      : rounds(problem, piece),
        p(problem),
        N(rounds.N),
        E(p.E()),
        M(p.M()),
        block(rounds.block),
        buffer(elements(p)) {
    const i64 rows = LshRounds<T>::rows(p);
    dout = buffer.data();
    dq = dout + N * M;
    dk = dq + N * E;
    dv = dk + N * E;
    delta = dv + N * M;
    log_sums = delta + N;
    others = log_sums + N;
    dkeys = others + N;
    dvalues = dkeys + rows * E;
    dz = dvalues + rows * M;
    dout_turned = dz + 2 * p.chunk(p.N()) * block;
    dq_turned = dout_turned + M * block;
    q_rows = dq_turned + E * block;
    dout_rows = q_rows + E * block;
    own = dout_rows + M * block;
    std::fill(dq, delta, T(0));
    pack_rows(row_dout, rounds.b, rounds.h, 0, N,
              p.rules.logsumexp ? T(1) : 1 / T(p.rules.rounds), dout);
    for (i64 i = 0; i < N; ++i) {
      delta[i] = simd::dot(dout + i * M, &out(rounds.b, i, rounds.h, 0), M);
    }
  }

  void round(i64 r, const View<const T, 4>& kept_log_sums) {
    rounds.start(r);
    for (i64 i = 0; i < N; ++i) {
      log_sums[i] = kept_log_sums(rounds.b, rounds.h, p.rules.logsumexp ? 0 : r, i);
      others[i] = p.rules.marks_others() ? kept_log_sums(rounds.b, rounds.h, 1, i) : T(0);
    }
    std::fill(dkeys, dz, T(0));
    rounds.each_tile([&](const LshTile& t) { add(t); });
    for (i64 row = 0; row < rounds.lead + N; ++row) {
      const auto n = static_cast<i64>(rounds.positions[row]);
      for (i64 e = 0; e < E; ++e) dk[n * E + e] += dkeys[row * E + e];
      for (i64 m = 0; m < M; ++m) dv[n * M + m] += dvalues[row * M + m];
    }
  }

  void add(const LshTile& t) {
    T* const a = rounds.scores;
    rounds.score(t);
    gather(t);
    tile_product<T>(t.keys, block, M, {rounds.values + t.row * M, M, 1}, {dout_turned, block},
                    {dz, block}, false);
    differentiate(t);
    rounds.clear_constants(t, dz);
    tile_product<T>(t.keys, M, block, {a, block, 1}, {dout_rows, M}, {dvalues + t.row * M, M},
                    true);
    tile_product<T>(t.keys, E, block, {dz, block, 1}, {q_rows, E}, {dkeys + t.row * E, E}, true);
    tile_product<T>(E, block, t.keys, {rounds.keys + t.row * E, 1, E}, {dz, block},
                    {dq_turned, block}, false);
    for (i64 i = 0; i < t.queries; ++i) {
      T* const row = dq + rounds.position(t, i) * E;
      for (i64 e = 0; e < E; ++e) row[e] += dq_turned[e * block + i];
    }
  }

  // Gathers the tile's query rows; padding rows get weight 0.
  void gather(const LshTile& t) {
    rounds.turn_queries(t, dout, M, dout_turned);
    std::fill(q_rows, own, T(0));
    for (i64 i = 0; i < block; ++i) {
      own[i] = infinity<T>;
      own[block + i] = 0;
      if (i >= t.queries) continue;
      const i64 n = rounds.position(t, i);
      std::copy(rounds.q + n * E, rounds.q + (n + 1) * E, q_rows + i * E);
      std::copy(dout + n * M, dout + (n + 1) * M, dout_rows + i * M);
      own[i] = rounds.alone[i] == 1 && others[n] == 1 ? infinity<T> : log_sums[n];
      own[block + i] = delta[n];
    }
  }

  // Replaces scores by d ⊙ a, and do · v in dz by dz.
  void differentiate(const LshTile& t) {
    const simd::Tag<T> d;
    T* const a = rounds.scores;
    for (i64 i = 0; i < block; i += simd::lanes<T>) {
      const auto log_sum = hn::LoadU(d, own + i);
      for (i64 j = 0; j < t.keys; ++j) {
        T* const at = a + j * block + i;
        hn::StoreU(simd::exp<T>(hn::Sub(hn::LoadU(d, at), log_sum)), d, at);
      }
    }
    const auto factor = hn::Set(d, p.dropout > 0 ? rounds.kept_factor() : T(1));
    if (p.dropout > 0) {
      rounds.each_weight(t, [&](i64 j, i64 i, auto kept) {
        T* const at = dz + j * block + i;
        hn::StoreU(hn::IfThenElseZero(kept, hn::Mul(factor, hn::LoadU(d, at))), d, at);
      });
    }
    for (i64 i = 0; i < block; i += simd::lanes<T>) {
      auto subtracted = hn::LoadU(d, own + block + i);
      if (!p.rules.logsumexp) {
        subtracted = hn::Zero(d);
        for (i64 j = 0; j < t.keys; ++j) {
          subtracted = hn::MulAdd(hn::LoadU(d, a + j * block + i),
                                  hn::LoadU(d, dz + j * block + i), subtracted);
        }
      }
      for (i64 j = 0; j < t.keys; ++j) {
        T* const at = dz + j * block + i;
        const auto weight = hn::LoadU(d, a + j * block + i);
        hn::StoreU(hn::Mul(weight, hn::Sub(hn::LoadU(d, at), subtracted)), d, at);
      }
    }
    if (p.dropout > 0) {
      rounds.each_weight(t, [&](i64 j, i64 i, auto kept) {
        T* const at = a + j * block + i;
        hn::StoreU(hn::IfThenElseZero(kept, hn::Mul(factor, hn::LoadU(d, at))), d, at);
      });
    }
  }

  // dq ← τ dq, plus dk through the normalisation.
  void finish() {
    for (i64 i = 0; i < N; ++i) {
      const T* const key = rounds.k + i * E;
      const T* const dkey = dk + i * E;
      T* const row = dq + i * E;
      const T norm = rounds.norms[i];
      const T along = p.rules.normalize ? simd::dot(key, dkey, E) : T(0);
      const T share = norm == 0 ? T(0) : 1 / norm;
      for (i64 e = 0; e < E; ++e) {
        row[e] = p.temperature * row[e] + share * (dkey[e] - key[e] * along);
      }
    }
  }
};

}  // namespace

template <class Device, class T>
void LshKernels<Device, T>::forward(const Device&, const Lsh<T>& p, View<T, 4> out,
                                    View<T, 4> log_sums) {
  parallel_for(p.B() * p.H(), [&](i64 piece) {
    const i64 b = piece / p.H(), h = piece % p.H(), N = p.length(b);
    clear_rows(out, b, h, N);
    for (i64 r = 0; r < log_sums.size(2); ++r) {
      for (i64 i = N; i < p.N(); ++i) log_sums(b, h, r, i) = infinity<T>;
    }
    if (N == 0) return;
    Forward<T> head(p, piece);
    for (i64 r = 0; r < p.rules.rounds; ++r) {
      head.rounds.start(r);
      head.rounds.each_tile([&](const LshTile& t) {
        head.add(t);
        head.combine(t, log_sums);
      });
    }
    unpack_rows(head.out, b, h, 0, N, out);
    for (i64 i = 0; p.rules.logsumexp && i < N; ++i) {
      const bool empty = head.log_sums[i] == -infinity<T>;
      log_sums(b, h, 0, i) = empty ? infinity<T> : head.log_sums[i];
      if (p.rules.marks_others()) log_sums(b, h, 1, i) = head.others[i];
    }
  });
}

template <class Device, class T>
void LshBackwardKernels<Device, T>::backward(const Device&, const Lsh<T>& p, View<const T, 4> out,
                                             View<const T, 4> log_sums, View<const T, 4> dout,
                                             View<T, 4> dq, View<T, 4> dv) {
  parallel_for(p.B() * p.H(), [&](i64 piece) {
    const i64 b = piece / p.H(), h = piece % p.H(), N = p.length(b);
    clear_rows(dq, b, h, N);
    clear_rows(dv, b, h, N);
    if (N == 0) return;
    Backward<T> head(p, piece, out, dout);
    for (i64 r = 0; r < p.rules.rounds; ++r) head.round(r, log_sums);
    head.finish();
    unpack_rows(head.dq, b, h, 0, N, dq);
    unpack_rows(head.dv, b, h, 0, N, dv);
  });
}

template struct LshHashKernels<Cpu, float>;
template struct LshHashKernels<Cpu, double>;
template struct LshKernels<Cpu, float>;
template struct LshKernels<Cpu, double>;
template struct LshBackwardKernels<Cpu, float>;
template struct LshBackwardKernels<Cpu, double>;

}  // namespace weft
