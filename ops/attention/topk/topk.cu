// CUDA kernels of attention to chosen keys; the equations are in topk.h.
//
//     forward_rows     a warp owns a query: scores of its keys, softmax, output
//     query_gradients  a warp owns a query: dq, and the gradients of its weights and scores
//     key_gradients    a block owns 64 keys, a warp 16 of them: it visits all queries in order and
//                      accumulates, in shared memory, the gradients from those that chose its keys
//
// For k keys a query gathers k (E + M) elements forward and k (2 E + M) backward, and scatters
// k (E + M): 4 bytes in f32 for 2 operations each, usually from cache, whose bandwidth is the limit
// (unmeasured). A binary search of log₂ k reads for each query and 64 keys finds which queries
// chose them.
#include <cmath>
#include <limits>

#include "ops/attention/engines/lists/lane_groups.cuh"
#include "ops/attention/topk/topk.h"
#include "ops/dropout/mask.h"
#include "runtime/cuda/loops.h"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

constexpr int block_threads = 128, warps = block_threads / 32;

// One query and the keys that it chose, processed by a warp.
template <class T>
struct WarpQuery {
  WarpTeam team;
  i64 b, h, i, row;
  const std::int32_t* keys;  // ascending, then −1
  int count = 0;             // of chosen keys

  __device__ WarpQuery(const TopkAttention<T>& p, const View<const std::int32_t, 4>& topk,
                       i64 query)
      : b(query / p.N() / p.H()),
        h(query / p.N() % p.H()),
        i(query % p.N()),
        row(query),
        keys(topk.data + query * topk.size(3)) {
    for (i64 t = team.rank(); t < topk.size(3); t += 32) count += keys[t] >= 0;
    count = team.sum(count);
  }

  // to[t] = scale x_i · y_j for each chosen key j.
  __device__ void dots(T scale, const View<const T, 4>& x, const View<const T, 4>& y, T* to) const {
    const LaneGroups<WarpTeam> groups(team, y.size(3));
    groups.dots(
        scale, RowsOf<T>(x, b, h), i, RowsOf<T>(y, b, h), count, [&](i64 t) { return keys[t]; },
        to);
    team.wait();
  }

  // Calls f(m, Σ_t weights[t] y_j[m]) once for each column.
  template <class F>
  __device__ void combine(const T* weights, const View<const T, 4>& y, const F& f) const {
    const LaneGroups<WarpTeam> groups(team, y.size(3));
    const RowsOf<T> rows(y, b, h);
    const auto part = [&](i64 m) {
      return groups.template weighted<4>(
          rows, m, count, [&](i64 t) { return weights[t]; }, [&](i64 t) { return keys[t]; });
    };
    groups.columns(y.size(3), part, f);
  }

  __device__ T factor(const TopkAttention<T>& p, const DropoutMask& mask, int t) const {
    if (p.dropout == 0) return T(1);
    const Philox drawn = mask.key.words(mask.index(row, t));
    const int piece = t % 8;  // selected, not indexed: the words stay in registers
    const std::uint32_t low = piece < 2 ? drawn.word[0] : drawn.word[1];
    const std::uint32_t high = piece < 6 ? drawn.word[2] : drawn.word[3];
    const std::uint32_t half = (piece < 4 ? low : high) >> (16 * (piece % 2)) & 0xffff;
    return static_cast<std::int32_t>(half) >= mask.threshold ? static_cast<T>(mask.factor) : T(0);
  }
};

template <class T>
__global__ void __launch_bounds__(block_threads, 6)
    forward_rows(TopkAttention<T> p, DropoutMask mask, View<const std::int32_t, 4> topk,
                 View<T, 4> out, View<T, 3> log_sums) {
  const WarpTeam team;
  SharedMemory shared;
  T* const weights = shared.take<T>(warps * topk.size(3)) + threadIdx.x / 32 * topk.size(3);
  const i64 rows = p.B() * p.H() * p.N(), step = i64{gridDim.x} * warps;
  for (i64 r = i64{blockIdx.x} * warps + threadIdx.x / 32; r < rows; r += step) {
    const WarpQuery<T> query(p, topk, r);
    query.dots(p.temperature, p.q, p.k, weights);
    T most = -std::numeric_limits<T>::infinity();
    for (int t = static_cast<int>(team.rank()); t < query.count; t += 32) {
      most = Largest::of(most, weights[t]);
    }
    most = team.max(most);
    const bool empty = query.count == 0;
    T sum = 0;
    for (int t = static_cast<int>(team.rank()); t < query.count; t += 32) {
      const T weight = std::exp(weights[t] - most);
      sum += weight;
      weights[t] = weight * query.factor(p, mask, t);
    }
    sum = team.sum(sum);
    __syncwarp();
    query.combine(weights, p.v, [&](i64 m, T o) {
      out(query.b, query.i, query.h, m) = empty ? T(0) : o / sum;
    });
    if (team.rank() == 0) {
      log_sums(query.b, query.h, query.i) =
          empty ? std::numeric_limits<T>::infinity() : most + std::log(sum);
    }
    __syncwarp();
  }
}

// `weights` and `scores` [B, H, N, k] receive d a and τ dz.
template <class T>
__global__ void __launch_bounds__(block_threads, 6)
    query_gradients(TopkAttention<T> p, DropoutMask mask, View<const std::int32_t, 4> topk,
                    View<const T, 3> log_sums, View<const T, 4> dout, View<T, 4> dq, T* weights,
                    T* scores) {
  const WarpTeam team;
  const i64 rows = p.B() * p.H() * p.N(), step = i64{gridDim.x} * warps;
  for (i64 r = i64{blockIdx.x} * warps + threadIdx.x / 32; r < rows; r += step) {
    const WarpQuery<T> query(p, topk, r);
    T* const z = scores + r * topk.size(3);
    T* const da = weights + r * topk.size(3);
    query.dots(p.temperature, p.q, p.k, z);
    query.dots(T(1), dout, p.v, da);
    const T log_sum = log_sums(query.b, query.h, query.i);
    T delta = 0;
    for (int t = static_cast<int>(team.rank()); t < query.count; t += 32) {
      da[t] *= query.factor(p, mask, t);
      delta += std::exp(z[t] - log_sum) * da[t];
    }
    delta = team.sum(delta);
    for (int t = static_cast<int>(team.rank()); t < query.count; t += 32) {
      const T a = std::exp(z[t] - log_sum);
      z[t] = p.temperature * a * (da[t] - delta);  // exactly 0 if a is 1
      da[t] = query.factor(p, mask, t) * a;
    }
    __syncwarp();
    query.combine(z, p.k, [&](i64 e, T sum) { dq(query.b, query.i, query.h, e) = sum; });
  }
}

constexpr int own_keys = 64, warp_keys = own_keys / warps, most_columns = 64;

// A block has `columns` columns of dk and dv. For 128 queries at a time, each thread finds the
// positions of each warp's keys in one query's list; then every warp visits the queries that chose
// some.
template <class T>
__global__ void __launch_bounds__(block_threads, 6)
    key_gradients(TopkAttention<T> p, View<const std::int32_t, 4> topk, View<const T, 4> dout,
                  const T* weights, const T* scores, View<T, 4> dk, View<T, 4> dv, int columns) {
  constexpr int held = most_columns / 32;
  const i64 tiles = (p.S() + own_keys - 1) / own_keys, head = blockIdx.x / tiles;
  const i64 b = head / p.H(), h = head % p.H(), first = blockIdx.x % tiles * own_keys;
  const i64 column = i64{blockIdx.y} * columns;
  const i64 counted = std::min(p.queries(b), p.N()), k = topk.size(3);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  SharedMemory shared;
  T* const key_sums = shared.take<T>(own_keys * columns);
  T* const value_sums = shared.take<T>(own_keys * columns);
  int* const bounds = shared.take<int>((warps + 1) * block_threads);  // [warps + 1][queries]
  for (int i = thread; i < own_keys * columns; i += block_threads) key_sums[i] = value_sums[i] = 0;

  const i64 begin = p.causal ? first / block_threads * block_threads : 0;
  for (i64 query = begin; query < counted; query += block_threads) {
    const std::int32_t* const lists = topk.data + (head * p.N() + query) * k;
    __syncthreads();
    i64 low = 0, high = query + thread < counted ? k : 0;
    const auto reaches = [&](i64 t, i64 bound) {  // −1 counts as beyond
      return i64{static_cast<std::uint32_t>(lists[thread * k + t])} >= bound;
    };
    const i64 end = high;
    while (low < high) {
      const i64 middle = (low + high) / 2;
      if (reaches(middle, first))
        high = middle;
      else
        low = middle + 1;
    }
    bounds[thread] = static_cast<int>(low);
    for (int w = 1; w <= warps; ++w) {
      while (low < end && !reaches(low, first + w * warp_keys)) ++low;
      bounds[w * block_threads + thread] = static_cast<int>(low);
    }
    __syncthreads();
    for (int group = 0; group < block_threads; group += 32) {
      const int from = bounds[warp * block_threads + group + lane];
      const int to = bounds[(warp + 1) * block_threads + group + lane];
      unsigned some = __ballot_sync(0xffffffffu, from < to);
      for (; some != 0; some &= some - 1) {
        const int q = __ffs(static_cast<int>(some)) - 1, local = group + q;
        const int last = __shfl_sync(0xffffffffu, to, q);
        const i64 i = query + local, row = (head * p.N() + i) * k;
        T left[held], given[held];
#pragma unroll
        for (int c = 0; c < held; ++c) {
          const i64 e = column + lane + 32 * c;
          const bool inside = lane + 32 * c < columns;
          left[c] = inside && e < p.E() ? p.q(b, i, h, e) : T(0);
          given[c] = inside && e < p.M() ? dout(b, i, h, e) : T(0);
        }
        for (int t = __shfl_sync(0xffffffffu, from, q); t < last; ++t) {
          const i64 at = (lists[local * k + t] - first) * columns;
          const T weight = weights[row + t], score = scores[row + t];
#pragma unroll
          for (int c = 0; c < held; ++c) {
            if (lane + 32 * c >= columns) continue;
            key_sums[at + lane + 32 * c] += score * left[c];
            value_sums[at + lane + 32 * c] += weight * given[c];
          }
        }
      }
    }
  }
  __syncthreads();
  for (int i = thread; i < own_keys * columns; i += block_threads) {
    const i64 j = first + i / columns, e = column + i % columns;
    if (j >= p.S()) continue;
    if (e < p.E()) dk(b, j, h, e) = key_sums[i];
    if (e < p.M()) dv(b, j, h, e) = value_sums[i];
  }
}

}  // namespace

template <class Device, class T>
void TopkKernels<Device, T>::forward(const Device& device, const TopkAttention<T>& p,
                                     View<const std::int32_t, 4> topk, View<T, 4> out,
                                     View<T, 3> log_sums) {
  const i64 rows = p.B() * p.H() * p.N();
  if (rows == 0) return;
  const i64 k = topk.size(3);
  start("topk", device, blocks_for(device, 32 * rows, block_threads), block_threads,
        SharedMemory::bytes<T>(static_cast<std::size_t>(warps * k)), forward_rows<T>, p,
        p.mask(k), topk, out, log_sums);
}

template <class Device, class T>
void TopkKernels<Device, T>::backward(const Device& device, const TopkAttention<T>& p,
                                      View<const std::int32_t, 4> topk, View<const T, 3> log_sums,
                                      View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk,
                                      View<T, 4> dv) {
  const i64 heads = p.B() * p.H(), rows = heads * p.N();
  if (heads == 0) return;
  // d a and τ dz of the chosen keys, [B, H, N, k]
  const i64 chosen = rows * topk.size(3);
  const Workspace<T> work(device, 2 * chosen);
  T *const weights = work.data(), *const scores = weights + chosen;
  if (rows > 0) {
    start("topk", device, blocks_for(device, 32 * rows, block_threads), block_threads, 0,
          query_gradients<T>, p, p.mask(topk.size(3)), topk, log_sums,
          dout, dq, weights, scores);
  }
  const i64 width = std::max(p.E(), p.M());
  const int columns = static_cast<int>(std::min<i64>(width, most_columns));
  const auto sums = static_cast<std::size_t>(own_keys * columns);
  start("topk", device,
        {static_cast<unsigned>(heads * ((p.S() + own_keys - 1) / own_keys)),
         static_cast<unsigned>((width + columns - 1) / columns)},
        block_threads,
        2 * SharedMemory::bytes<T>(sums) + SharedMemory::bytes<int>((warps + 1) * block_threads),
        key_gradients<T>, p, topk, dout, weights, scores, dk, dv, columns);
}

template struct TopkKernels<Cuda, float>;
template struct TopkKernels<Cuda, double>;

}  // namespace weft
