// CUDA kernels of LSH attention; the equations are in lsh.h. A block has up to 32 ranks of a sorted
// list, of whole chunks or of one, and streams the ranks that they see, or that see them, 64 at a
// time; scores stay in its registers, weights in its shared memory (tiles.cuh). Keys, values and
// queries are gathered in place. Rounds are launched one after the other, and in each of them every
// output row has one owner: sums have a fixed order without atomics.
//
// Forward 2 (E + M) operations a pair in f32, R N 2c pairs a head; backward 8 E + 6 M, since
// queries and keys each recompute the scores. With c = 32 a query reads 2 (E + M) elements through
// the caches for 128 (E + M) operations: bound by arithmetic if the head fits in the caches, by the
// L2 cache for small chunks. Unmeasured.
#include "ops/attention/lsh/head.cuh"

namespace weft {
namespace {

using namespace lsh_detail;

// The running softmax of four rows, shared by the 16 threads of a row.
template <class T>
struct RunningRows {
  T most[4], sum[4];
  unsigned others = 0;  // bit i: row i saw a key other than its own

  __device__ void start() {
    others = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) most[i] = -infinity<T>, sum[i] = 0;
  }

  // Replaces scores by weights, and rescales `out`. Bits of `selfs` are a query's own keys, which
  // count only until others are seen.
  __device__ __forceinline__ void meet(T (&z)[4][4], bool self_last, unsigned selfs,
                                       T (&out)[4][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      T tile_most = -infinity<T>;
      if (self_last) {
        T of_others = -infinity<T>;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (!(selfs >> (4 * i + j) & 1)) of_others = Largest::of(of_others, z[i][j]);
        }
        of_others = of_row<Largest>(of_others);
        if (of_others > -infinity<T> && !(others >> i & 1)) {
          others |= 1u << i;
          most[i] = -infinity<T>;
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if ((others >> i & 1) && (selfs >> (4 * i + j) & 1)) z[i][j] = -infinity<T>;
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) tile_most = Largest::of(tile_most, z[i][j]);
      tile_most = Largest::of(most[i], of_row<Largest>(tile_most));
      const T shift = tile_most == -infinity<T> ? T(0) : tile_most;
      const T before = std::exp(most[i] - shift);
      T total = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) total += z[i][j] = std::exp(z[i][j] - shift);
      sum[i] = sum[i] * before + of_row<Added>(total);
      most[i] = tile_most;
#pragma unroll
      for (int j = 0; j < 4; ++j) out[i][j] *= before;
    }
  }
};

// The state of a position before and after a round (lsh_cpu.cpp, combine()).
template <class T>
struct Combined {
  T log_sum = 0, others = 0;  // kept, over all rounds so far
  T before = 1, share = 0;    // factors of out so far and of this round's weighted sum

  __device__ __forceinline__ void meet(const LshRules& rules, T most, T sum, bool saw_others) {
    const bool empty = sum == 0;  // a sum of NaN is not 0, so NaN is propagated
    const T of_round = most + std::log(sum);
    share = empty ? T(0) : 1 / (sum * T(rules.rounds));
    if (rules.marks_others()) {  // others, in any round, override the own key
      if (!saw_others && others == 1) {
        share = 0;
        return;
      }
      if (saw_others && others == 0) log_sum = -infinity<T>;
      others = saw_others ? T(1) : T(0);
    }
    if (!rules.logsumexp) {
      log_sum = empty ? infinity<T> : of_round;
    } else if (!empty) {
      const T larger = Largest::of(log_sum, of_round);
      const T all = larger + std::log(std::exp(log_sum - larger) + std::exp(of_round - larger));
      before = std::exp(log_sum - all);
      share = std::exp(of_round - all) / sum;
      log_sum = all;
    }
  }
};

template <class T>
__global__ void __launch_bounds__(tile_threads, tile_blocks<T>)
    attend_round(LshWork<T> w, std::int32_t round, View<T, 4> out, View<T, 4> log_sums) {
  __shared__ LshOperands<T> shared;
  const Lsh<T>& p = w.p;
  const bool self_last = p.rules.self == LshSelf::last;
  for (i64 item = blockIdx.x; item < w.items(); item += gridDim.x) {
    LshBlock<T, true> block(w, shared, round);
    if (!block.take(item)) continue;
    const i64 kept = p.rules.logsumexp ? 0 : round;
    RunningRows<T> rows;
    T sum[4][4];
    for (i64 m = 0; m < p.M(); m += streamed_rows) {
      clear(sum);
      if (m == 0 || !block.single()) rows.start();
      block.each_tile([&](const LshPart& part, std::int32_t first) {
        if (m == 0 || !block.single()) {
          block.stream(part, first);
          T z[4][4];
          const unsigned selfs = block.score(part, z);
          if (!block.idle()) {
            rows.meet(z, self_last, selfs, sum);
            if (p.dropout > 0) block.drop(block.kept(part, first), z);
            store_weights(shared.weights, z);
          }
        }
        add_weighted(shared, block.rows, shared.weights, block.values(), m, sum);
      });
      Combined<T> combined[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int32_t n = block.own(i);
        if (n < 0) continue;
        if (p.rules.logsumexp) combined[i].log_sum = log_sums(block.b, block.h, 0, n);
        if (p.rules.marks_others()) combined[i].others = log_sums(block.b, block.h, 1, n);
        combined[i].meet(p.rules, rows.most[i], rows.sum[i], rows.others >> i & 1);
        const auto row = row_of(out, block.b, n, block.h);
        const i64 column = m + other_group() * 4;
        T to[4] = {};
        load_columns<4>(row, column, to);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const T before = combined[i].before * to[j];
          to[j] = combined[i].share == 0 ? before : before + combined[i].share * sum[i][j];
        }
        store_columns<4>(to, row, column);
      }
      __syncwarp();  // the log-sums before this round have been read
      if (m + streamed_rows < p.M() || other_group() != 0) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int32_t n = block.own(i);
        if (n < 0) continue;
        const bool none = p.rules.logsumexp && round + 1 == p.rules.rounds &&
                          combined[i].log_sum == -infinity<T>;
        log_sums(block.b, block.h, kept, n) = none ? infinity<T> : combined[i].log_sum;
        if (p.rules.marks_others()) log_sums(block.b, block.h, 1, n) = combined[i].others;
      }
    }
  }
}

// The arrays that the rounds add to, for one position of a head.
template <class T>
struct Start {
  LshWork<T> w;
  View<T, 4> out, log_sums;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const Lsh<T>& p = w.p;
    const i64 h = row % p.H(), n = row / p.H() % p.N(), b = row / p.H() / p.N();
    const bool exists = n < p.length(b);
    if (exists) keep_inverse_norm(w, team, b, n, h);
    for (i64 m = team.rank(); m < p.M(); m += Team::threads) out(b, n, h, m) = 0;
    for (i64 r = team.rank(); r < p.rules.kept(); r += Team::threads) {
      const T before = p.rules.marks_others() && r == 1 ? T(0) : -infinity<T>;
      log_sums(b, h, r, n) = exists ? before : infinity<T>;
    }
  }
};

// Inverse norms, and the initial values of what the rounds add to: out 0, log_sums as before the
// first round.
template <class T>
void start_rounds(const Cuda& device, const LshWork<T>& w, View<T, 4> out, View<T, 4> log_sums) {
  const i64 width = w.p.E() < w.p.M() ? w.p.M() : w.p.E();
  for_rows("lsh", device, w.heads() * w.p.N(), width, Start<T>{w, out, log_sums});
}

// Adds a round to out and log_sums; the last one completes them.
template <class T>
void attend(const Cuda& device, const LshWork<T>& w, std::int32_t round, View<T, 4> out,
            View<T, 4> log_sums) {
  start("lsh", device, grid_of(w.items()), tile_threads, 0, attend_round<T>, w, round, out,
        log_sums);
}

}  // namespace

template <class Device, class T>
void LshKernels<Device, T>::forward(const Device& device, const Lsh<T>& p, View<T, 4> out,
                                    View<T, 4> log_sums) {
  if (p.B() * p.N() * p.H() == 0) return;
  const LshScratch<T> scratch(device, p);
  start_rounds(device, scratch.work, out, log_sums);
  for (std::int32_t r = 0; r < p.rules.rounds; ++r) attend(device, scratch.work, r, out, log_sums);
}

template struct LshKernels<Cuda, float>;
template struct LshKernels<Cuda, double>;

}  // namespace weft
