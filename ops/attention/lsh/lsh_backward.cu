// CUDA kernels of LSH attention, backward; the equations are in lsh.h, the ownership in lsh.cu. For
// dq a block owns queries, for dk and dv keys, and each recomputes the weights from ℓ or L. lsh.cu
// has the operations and bytes. Unmeasured.
#include "ops/attention/lsh/head.cuh"

namespace weft {
namespace {

using namespace lsh_detail;

// The gradient of out as seen by the rounds, and the results of forward that they read.
template <class T>
struct LshGradient {
  View<const T, 4> out, log_sums, dout;
};

// The rows of dout times the weight of a round.
template <class T>
__device__ Rows<T> dout_rows(const LshWork<T>& w, const View<const T, 4>& dout, i64 b,
                             i64 h) {
  const T share = w.p.rules.logsumexp ? T(1) : 1 / T(w.p.rules.rounds);
  return {&dout(b, 0, h, 0), dout.stride(1), dout.stride(3), w.p.M(), share};
}

// ℓ^r_i or L_i; +∞, which makes weights 0, if there is no query.
template <class T>
__device__ T log_sum_of(const LshWork<T>& w, const LshGradient<T>& g, i64 b,
                        i64 h, std::int32_t round, std::int32_t n) {
  return n < 0 ? infinity<T> : g.log_sums(b, h, w.p.rules.logsumexp ? 0 : round, n);
}
template <class T>
__device__ T* deltas_of(const LshWork<T>& w, i64 piece, std::int32_t round) {
  const i64 row = w.p.rules.logsumexp ? piece : piece * w.p.rules.rounds + round;
  return w.deltas + row * w.p.N();
}
template <class T>
__device__ T* alone_of(const LshWork<T>& w, i64 piece, std::int32_t round) {
  return w.alone + (piece * w.p.rules.rounds + round) * w.p.N();
}

// Adds the tile to rows n of the owned positions.
template <class T>
__device__ __forceinline__ void add_owned(const std::int32_t* own, T* to, i64 row_stride,
                                          i64 stride, i64 begin,
                                          i64 width, const T (&sum)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int32_t n = own[own_group() * 4 + i];
    if (n < 0) continue;
    const i64 column = begin + other_group() * 4;
    const ElementRow<T> row{to + n * row_stride, stride, width};
    T all[4] = {};
    load_columns<4>(row, column, all);
#pragma unroll
    for (int j = 0; j < 4; ++j) all[j] += sum[i][j];
    store_columns<4>(all, row, column);
  }
}

// a and g of a tile of pairs, for a block that owns queries. A query's own key that comes last has
// dz = 0.
template <class T>
__device__ __forceinline__ void weigh(const LshBlock<T, true>& block, const LshGradient<T>& g,
                                      const LshPart& part, i64 first, const T (&log_sum)[4],
                                      T (&a)[4][4], T (&slope)[4][4]) {
  block.stream(part, first);
  const unsigned selfs = block.score(part, a);
  clear(slope);
  add_products(block.shared, block.rows, dout_rows(block.w, g.dout, block.b, block.h),
               block.values(), slope);
  if (block.idle()) return;
  if (block.w.p.dropout > 0) block.drop(block.kept(part, first), slope);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      a[i][j] = selfs >> (4 * i + j) & 1 ? T(0) : std::exp(a[i][j] - log_sum[i]);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(tile_threads, tile_blocks<T>)
    query_gradients(LshWork<T> w, LshGradient<T> g, std::int32_t round, View<T, 4> dq) {
  __shared__ LshOperands<T> shared;
  const Lsh<T>& p = w.p;
  const bool mean = !p.rules.logsumexp;
  for (i64 item = blockIdx.x; item < w.items(); item += gridDim.x) {
    LshBlock<T, true> block(w, shared, round);
    if (!block.take(item)) continue;
    const bool single = block.single();
    T* const deltas = deltas_of(w, block.piece, round);
    T log_sum[4], delta[4], a[4][4], slope[4][4], sum[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int32_t n = block.own(i);
      log_sum[i] = log_sum_of(w, g, block.b, block.h, round, n);
      delta[i] = mean || n < 0 ? T(0) : deltas[n];
    }
    if (mean) {
      T weight[4] = {};
      block.each_tile([&](const LshPart& part, std::int32_t first) {
        weigh(block, g, part, first, log_sum, a, slope);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            delta[i] += a[i][j] * slope[i][j];
            weight[i] += a[i][j];
          }
        }
      });
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (block.idle()) continue;
        delta[i] = of_row<Added>(delta[i]);
        weight[i] = of_row<Added>(weight[i]);
        const std::int32_t n = block.own(i);
        if (n < 0 || other_group() != 0) continue;
        deltas[n] = delta[i];
        if (w.alone != nullptr) alone_of(w, block.piece, round)[n] = weight[i] == 0 ? T(1) : T(0);
      }
    }
    for (i64 e = 0; e < p.E(); e += streamed_rows) {
      clear(sum);
      block.each_tile([&](const LshPart& part, std::int32_t first) {
        if (!single || e == 0) {
          if (!single || !mean) weigh(block, g, part, first, log_sum, a, slope);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) a[i][j] *= slope[i][j] - delta[i];
          }
          store_weights(shared.weights, a);
        }
        add_weighted(shared, block.rows, shared.weights, block.key_rows(), e, sum);
      });
      add_owned(shared.own, &dq(block.b, 0, block.h, 0), dq.stride(1), dq.stride(3), e, p.E(), sum);
    }
  }
}

// a and g of a tile of pairs, for a block that owns keys; `delta` of its queries. The result has
// the bits of LshBlock::score(), and `all` those of kept().
template <class T>
__device__ __forceinline__ unsigned weigh(const LshBlock<T, false>& block, const LshGradient<T>& g,
                                          const LshPart& part, i64 first, T (&delta)[4],
                                          T (&a)[4][4], T (&slope)[4][4], unsigned& all) {
  const LshWork<T>& w = block.w;
  block.stream(part, first);
  const unsigned selfs = block.score(part, a);
  clear(slope);
  add_products(block.shared, block.rows, block.values(), dout_rows(w, g.dout, block.b, block.h),
               slope);
  if (block.idle()) return selfs;
  all = w.p.dropout > 0 ? block.kept(part, first) : 0;
  if (w.p.dropout > 0) block.drop(all, slope);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::int32_t n = block.other(j);
    const T log_sum = log_sum_of(w, g, block.b, block.h, part.round, n);
    bool self_counts = false;
    if (selfs != 0 && n >= 0) {
      self_counts = w.p.rules.logsumexp ? g.log_sums(block.b, block.h, 1, n) == 0
                                        : alone_of(w, block.piece, part.round)[n] == 1;
    }
    delta[j] = n < 0 ? T(0) : deltas_of(w, block.piece, part.round)[n];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool hidden = selfs >> (4 * i + j) & 1 && !self_counts;
      a[i][j] = hidden ? T(0) : std::exp(a[i][j] - log_sum);
    }
  }
  return selfs;
}

template <class T>
__global__ void __launch_bounds__(tile_threads, tile_blocks<T>)
    key_gradients(LshWork<T> w, LshGradient<T> g, std::int32_t round, View<T, 4> dv) {
  __shared__ LshOperands<T> shared;
  const Lsh<T>& p = w.p;
  const i64 E = p.E(), M = p.M(), widest = E < M ? M : E;
  for (i64 item = blockIdx.x; item < w.items(); item += gridDim.x) {
    LshBlock<T, false> block(w, shared, round);
    if (!block.take(item)) continue;
    for (i64 begin = 0; begin < widest; begin += streamed_rows) {
      T of_key[4][4], of_value[4][4];
      clear(of_key);
      clear(of_value);
      block.each_tile([&](const LshPart& part, std::int32_t first) {
        T a[4][4], slope[4][4], delta[4] = {};
        unsigned all = 0;
        const unsigned selfs = weigh(block, g, part, first, delta, a, slope, all);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const bool constant = selfs >> (4 * i + j) & 1;
            slope[i][j] = constant ? T(0) : a[i][j] * (slope[i][j] - delta[j]);
          }
        }
        if (begin < M) {
          if (p.dropout > 0) block.drop(all, a);
          store_weights(shared.weights, a);
          const Rows<T> dout = dout_rows(w, g.dout, block.b, block.h);
          add_weighted(shared, block.rows, shared.weights, dout, begin, of_value);
          __syncthreads();  // the weights have been read
        }
        if (begin < E) {
          store_weights(shared.weights, slope);
          add_weighted(shared, block.rows, shared.weights, block.query_rows(), begin, of_key);
        }
      });
      if (begin < M) {
        T* const to = &dv(block.b, 0, block.h, 0);
        add_owned(shared.own, to, dv.stride(1), dv.stride(3), begin, M, of_value);
      }
      if (begin < E) {
        add_owned(shared.own, w.dk + block.piece * p.N() * E, E, 1, begin, E, of_key);
      }
    }
  }
}

// The state of one position of a head, before the rounds and after them.
template <class T>
struct Start {
  LshWork<T> w;
  LshGradient<T> g;
  View<T, 4> dq, dv;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const Lsh<T>& p = w.p;
    const i64 h = row % p.H(), n = row / p.H() % p.N(), b = row / p.H() / p.N();
    const i64 place = (b * p.H() + h) * p.N() + n;
    for (i64 m = team.rank(); m < p.M(); m += Team::threads) dv(b, n, h, m) = 0;
    for (i64 e = team.rank(); e < p.E(); e += Team::threads) {
      dq(b, n, h, e) = 0;
      w.dk[place * p.E() + e] = 0;
    }
    if (n >= p.length(b)) return;
    keep_inverse_norm(w, team, b, n, h);
    if (!p.rules.logsumexp) return;
    T part = 0;
    for (i64 m = team.rank(); m < p.M(); m += Team::threads) {
      part += g.dout(b, n, h, m) * g.out(b, n, h, m);
    }
    const T delta = team.sum(part);
    if (team.rank() == 0) w.deltas[place] = delta;
  }
};

template <class T>
struct Finish {
  LshWork<T> w;
  View<T, 4> dq;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const Lsh<T>& p = w.p;
    const i64 h = row % p.H(), n = row / p.H() % p.N(), b = row / p.H() / p.N();
    if (n >= p.length(b)) return;
    const i64 place = (b * p.H() + h) * p.N() + n;
    const T* const dk = w.dk + place * p.E();
    const T inverse = w.inverse_norms[place];
    T part = 0;
    for (i64 e = team.rank(); e < p.E() && p.rules.normalize; e += Team::threads) {
      part += inverse * p.q(b, n, h, e) * dk[e];
    }
    const T along = team.sum(part);
    for (i64 e = team.rank(); e < p.E(); e += Team::threads) {
      const T key = inverse * p.q(b, n, h, e);
      dq(b, n, h, e) = p.temperature * dq(b, n, h, e) + inverse * (dk[e] - key * along);
    }
  }
};

// Inverse norms, zeros in dq, dv and dk, and for logsumexp the deltas.
template <class T>
void start_rounds(const Cuda& device, const LshWork<T>& w, const LshGradient<T>& g, View<T, 4> dq,
                  View<T, 4> dv) {
  const i64 width = w.p.E() < w.p.M() ? w.p.M() : w.p.E();
  for_rows("lsh", device, w.heads() * w.p.N(), width, Start<T>{w, g, dq, dv});
}

// Adds Σ dz k of a round to dq; writes its deltas and the flags of queries that see only
// themselves, for all rounds before to_keys() is called for any.
template <class T>
void to_queries(const Cuda& device, const LshWork<T>& w, const LshGradient<T>& g,
                std::int32_t round, View<T, 4> dq) {
  start("lsh", device, grid_of(w.items()), tile_threads, 0, query_gradients<T>, w, g, round, dq);
}

// Adds the contributions of queries of all rounds to dk and dv of the keys in the list of this one.
template <class T>
void to_keys(const Cuda& device, const LshWork<T>& w, const LshGradient<T>& g, std::int32_t round,
             View<T, 4> dv) {
  start("lsh", device, grid_of(w.items()), tile_threads, 0, key_gradients<T>, w, g, round, dv);
}

// dq ← τ dq plus dk through the normalisation.
template <class T>
void finish(const Cuda& device, const LshWork<T>& w, View<T, 4> dq) {
  for_rows("lsh", device, w.heads() * w.p.N(), w.p.E(), Finish<T>{w, dq});
}

}  // namespace

template <class Device, class T>
void LshBackwardKernels<Device, T>::backward(const Device& device, const Lsh<T>& p,
                                             View<const T, 4> out, View<const T, 4> log_sums,
                                             View<const T, 4> dout, View<T, 4> dq, View<T, 4> dv) {
  if (p.B() * p.N() * p.H() == 0) return;
  LshScratch<T> scratch(device, p);
  scratch.add_backward(device);
  const LshWork<T>& work = scratch.work;
  const LshGradient<T> gradient{out, log_sums, dout};
  start_rounds(device, work, gradient, dq, dv);
  for (std::int32_t r = 0; r < p.rules.rounds; ++r) to_queries(device, work, gradient, r, dq);
  for (std::int32_t r = 0; r < p.rules.rounds; ++r) to_keys(device, work, gradient, r, dv);
  finish(device, work, dq);
}

template struct LshBackwardKernels<Cuda, float>;
template struct LshBackwardKernels<Cuda, double>;

}  // namespace weft
