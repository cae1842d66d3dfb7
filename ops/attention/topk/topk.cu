// CUDA kernels of attention to chosen keys; the equations are in topk.h.
//
//     forward_rows     a warp owns a query: scores of its keys, softmax, output
//     query_gradients  a warp owns a query: dq, and the gradients of its weights and scores
//     key_gradients    a block owns 64 keys, a warp 16 of them: it visits all queries in order and
//                      accumulates, in shared memory, the gradients from those that chose its keys
//
// For k keys a query gathers k (E + M) elements forward and again backward, and scatters as many: 4
// bytes in f32 for 2 operations each, usually from cache, whose bandwidth is the limit
// (unmeasured). A binary search of log₂ k reads for each query and 64 keys finds which queries
// chose them.
#include <cmath>
#include <limits>

#include "ops/attention/topk/topk.h"
#include "ops/dropout/mask.h"
#include "runtime/cuda/loops.h"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

constexpr int block_threads = 128, warps = block_threads / 32;

// One query, processed by a warp. A row of `width` elements is read by 8, 16 or 32 adjacent lanes,
// so that several short rows are read at once.
template <class T>
struct WarpQuery {
  i64 b, h, i, row;
  const std::int32_t* keys;  // ascending, then −1
  int k;

  __device__ WarpQuery(const TopkAttention<T>& p, const View<const std::int32_t, 4>& topk,
                       i64 query)
      : b(query / p.N() / p.H()),
        h(query / p.N() % p.H()),
        i(query % p.N()),
        row(query),
        keys(topk.data + query * topk.size(3)),
        k(static_cast<int>(topk.size(3))) {}

  struct Lane {
    int lane, across, own, group, groups;
    __device__ explicit Lane(i64 width)
        : lane(static_cast<int>(threadIdx.x) % 32),
          across(width <= 8    ? 8
                 : width <= 16 ? 16
                               : 32),
          own(lane % across),
          group(lane / across),
          groups(32 / across) {}
  };

  __device__ const T* row_of(const View<const T, 4>& x, i64 position) const {
    return x.data + b * x.stride(0) + position * x.stride(1) + h * x.stride(2);
  }

  // to[t] = scale x_i · y_j for each chosen key j, 0 behind the last. A lane keeps the product of
  // one iteration, so that all lanes write together.
  __device__ void dots(T scale, const View<const T, 4>& x, const View<const T, 4>& y, T* to) const {
    const Lane at(y.size(3));
    const T* const left = row_of(x, i);
    for (int begin = 0; begin < k; begin += 32) {
      T held = 0;
      for (int turn = 0; turn < at.across && begin + turn * at.groups < k; ++turn) {
        const int t = begin + turn * at.groups + at.group;
        const std::int32_t key = t < k ? keys[t] : -1;
        T part = 0;
        if (key >= 0) {
          const T* const right = row_of(y, key);
          for (i64 e = at.own; e < y.size(3); e += at.across) {
            part += left[e * x.stride(3)] * right[e * y.stride(3)];
          }
        }
        for (int by = at.across / 2; by > 0; by /= 2) {
          part += __shfl_xor_sync(0xffffffffu, part, by);
        }
        if (turn == at.own) held = part;
      }
      const int t = begin + at.own * at.groups + at.group;
      if (t < k) to[t] = scale * held;
    }
    __syncwarp();
  }

  // Calls f(m, Σ_t weights[t] y_j[m]) once for each column.
  template <class F>
  __device__ void combine(const T* weights, const View<const T, 4>& y, const F& f) const {
    const Lane at(y.size(3));
    for (i64 begin = 0; begin < y.size(3); begin += at.across) {
      const i64 m = begin + at.own;
      T part = 0;
#pragma unroll 4
      for (int t = at.group; t < k; t += at.groups) {
        const std::int32_t key = keys[t];
        if (key >= 0 && m < y.size(3)) part += weights[t] * row_of(y, key)[m * y.stride(3)];
      }
      for (int by = at.across; by < 32; by *= 2) part += __shfl_xor_sync(0xffffffffu, part, by);
      if (at.group == 0 && m < y.size(3)) f(m, part);
    }
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
    for (int t = static_cast<int>(team.rank()); t < query.k; t += 32) {
      if (query.keys[t] >= 0) most = Largest::of(most, weights[t]);
    }
    most = team.max(most);
    const bool empty = query.keys[0] < 0;
    T sum = 0;
    for (int t = static_cast<int>(team.rank()); t < query.k; t += 32) {
      if (query.keys[t] < 0) continue;
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
    T* const z = scores + r * query.k;
    T* const da = weights + r * query.k;
    query.dots(p.temperature, p.q, p.k, z);
    query.dots(T(1), dout, p.v, da);
    const T log_sum = log_sums(query.b, query.h, query.i);
    T delta = 0;
    for (int t = static_cast<int>(team.rank()); t < query.k; t += 32) {
      if (query.keys[t] < 0) continue;
      da[t] *= query.factor(p, mask, t);
      delta += std::exp(z[t] - log_sum) * da[t];
    }
    delta = team.sum(delta);
    for (int t = static_cast<int>(team.rank()); t < query.k; t += 32) {
      if (query.keys[t] < 0) continue;
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
