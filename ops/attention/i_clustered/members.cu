// CUDA kernels of the members' own scores in improved clustered attention; the equations are in
// i_clustered.h.
//
// For one head of N = 2048, k = 32, E = M = 64 in f32 (estimates, not measured): 17 MFLOP forward
// and 42 backward. A block has 32 consecutive queries in the order of their clusters, visits the
// clusters among them, and reads the k keys of each: 1 to 4 times 16 KB, from the L2 cache. So the
// work does not depend on the sizes of the clusters; in clusters of fewer than 32, rows of a tile
// of products are idle, and a warp of idle rows computes nothing. Bound by shared memory
// (tiles.cuh).
#include <cmath>

#include "ops/attention/i_clustered/members.cuh"
#include "ops/attention/i_clustered/tiles.cuh"
#include "ops/attention/infinity.h"

namespace weft {
namespace {

using namespace tiles;

constexpr const char* name = "i-clustered";

// The 32 queries of a block and the current cluster.
struct Queries {
  std::int32_t query[side];  // −1 beyond the last
  std::int32_t cluster[side];
  std::int32_t key[side];  // of the tile of T_c; −1 beyond the last
};

// The work of a block: one head, sorted queries first … first + rows − 1, columns of the result.
struct MembersPlace {
  i64 head, b, h, first, column, count;
  int rows;

  __device__ MembersPlace(const SortedQueries& p, i64 width) {
    const i64 wide = (width + columns - 1) / columns, tall = (p.N + side - 1) / side;
    column = blockIdx.x % wide * columns;
    first = blockIdx.x / wide % tall * side;
    head = blockIdx.x / wide / tall;
    b = head / p.H;
    h = head % p.H;
    count = p.begins[head * (p.clusters + 1) + p.clusters];
    const i64 left = count - first;
    rows = static_cast<int>(left < 0 ? 0 : left < side ? left : side);
  }

  // The end of the rows after row `low` that share its cluster.
  __device__ int end_of(const SortedQueries& p, std::int32_t cluster) const {
    const i64 end = p.begins[head * (p.clusters + 1) + cluster + 1] - first;
    return static_cast<int>(end < side ? end : side);
  }
};

__device__ inline void find_queries(const SortedQueries& p, const MembersPlace& at, Queries& s) {
  const int t = threadIdx.x;
  if (t < side) {
    s.query[t] = t < at.rows ? p.order[at.head * p.N + at.first + t] : -1;
    s.cluster[t] = t < at.rows ? p.labels[at.head * p.N + s.query[t]] : -1;
  }
}

// Zeros for the positions beyond the last valid query.
template <class T>
__device__ void clear_behind(const SortedQueries& p, const MembersPlace& at, const View<T, 4>& x) {
  for (int i = threadIdx.x; i < side * columns; i += threads) {
    const i64 query = at.first + i / columns, e = at.column + i % columns;
    if (query >= at.count && query < p.N && e < x.size(3)) x(at.b, query, at.h, e) = 0;
  }
}

// Loads the keys t … t + 31 of T_c as the others. True if there are any.
template <class T>
__device__ bool take_keys(const MembersAttention<T>& p, const MembersPlace& at,
                          const std::int32_t* chosen, i64 begin, Shared<T>& s,
                          Queries& q) {
  if (begin >= p.count || chosen[begin] < 0) return false;
  const int t = threadIdx.x;
  if (t < side) {
    const std::int32_t key = begin + t < p.count ? chosen[begin + t] : -1;
    q.key[t] = key;
    s.other[0][t] = key >= 0 ? &p.k(at.b, key, at.h, 0) : nullptr;
    s.other[1][t] = key >= 0 ? &p.v(at.b, key, at.h, 0) : nullptr;
  }
  return true;
}

// Bit j: row `row`, of the cluster with the rows low … high − 1, sees key eight + j of the tile.
__device__ inline unsigned seen_of_eight(const Queries& q, int row, int eight, int low, int high,
                                         bool causal) {
  unsigned bits = 0;
  if (row < low || row >= high) return bits;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const std::int32_t key = q.key[eight + j];
    bits |= static_cast<unsigned>(key >= 0 && (!causal || key <= q.query[row])) << j;
  }
  return bits;
}

// All eight rows of this thread's warp are outside low … high − 1.
__device__ inline bool idle_warp(int low, int high) {
  const int begin = static_cast<int>(threadIdx.x) / 32 * 8;
  return begin + 8 <= low || begin >= high;
}

template <class T>
__global__ __launch_bounds__(threads,
                             3) void forward_kernel(MembersAttention<T> p, DropoutMask mask,
                                                    View<const T, 4> bottom, View<T, 4> out) {
  __shared__ Shared<T> s;
  __shared__ Queries q;
  __shared__ T factors[side];
  const SortedQueries& sorted = p.sorted;
  const MembersPlace at(sorted, p.v.size(3));
  const int t = threadIdx.x, row = weighing_row(), eight = weighing_first();
  clear_behind(sorted, at, out);
  if (at.rows == 0) return;
  find_queries(sorted, at, q);
  __syncthreads();
  if (t < side) s.own[0][t] = t < at.rows ? &p.q(at.b, q.query[t], at.h, 0) : nullptr;
  T maximum = -infinity<T>, sum = 0;
  T o[4][4] = {};
  for (int low = 0; low < at.rows;) {
    const std::int32_t c = q.cluster[low];
    const int high = at.end_of(sorted, c);
    const bool idle = idle_warp(low, high);
    const std::int32_t* const chosen = p.topk + (at.head * sorted.clusters + c) * p.count;
    for (i64 begin = 0; take_keys(p, at, chosen, begin, s, q); begin += side) {
      multiply(s, s.own[0], p.q.stride(3), s.other[0], p.k.stride(3), p.k.size(3), p.temperature,
               idle, s.first);
      __syncthreads();
      const unsigned seen = seen_of_eight(q, row, eight, low, high, p.causal);
      T* const z = &s.first[row][eight];
      T most = maximum;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if ((seen >> j & 1) != 0) most = Largest::of(most, z[j]);
      }
      most = of_row<Largest>(most);
      const T factor = most == maximum ? T(1) : std::exp(maximum - most);
      unsigned kept = 0;
      if (seen != 0) kept = mask.keeps_eight(at.head * sorted.N + q.query[row], begin + eight);
      sum *= factor;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const T weight = (seen >> j & 1) != 0 ? std::exp(z[j] - most) : T(0);
        sum += weight;
        z[j] = (kept >> j & 1) != 0 ? static_cast<T>(mask.factor) * weight : T(0);
      }
      maximum = most;
      if (eight == 0) factors[row] = factor;
      __syncthreads();
      scale_rows(factors, o);
      accumulate(s, s.first, s.other[1], p.v.stride(3), at.column, p.v.size(3), idle, o);
    }
    low = high;
  }
  sum = of_row<Added>(sum);
  __syncthreads();
  if (eight == 0 && row < at.rows) {
    const T m = p.mass != nullptr ? p.mass[at.head * sorted.clusters + q.cluster[row]] : T(1);
    factors[row] = sum == 0 ? T(0) : m / sum;
  }
  __syncthreads();
  each_sum(at.column, p.v.size(3), o, [&](int i, i64 m, T x) {
    if (i >= at.rows) return;
    const T top = factors[i] == 0 ? T(0) : factors[i] * x;
    const T rest = bottom.data != nullptr ? bottom(at.b, q.cluster[i], at.h, m) : T(0);
    out(at.b, q.query[i], at.h, m) = top + rest;
  });
}

// Visits each cluster's keys twice: for the sums over a row, and for its gradients. The products of
// a single tile are kept for the second time.
template <class T>
__global__ __launch_bounds__(threads, 3) void backward_kernel(MembersAttention<T> p,
                                                              DropoutMask mask,
                                                              View<const T, 4> dout, View<T, 4> dq,
                                                              MemberSums<T> sums) {
  __shared__ Shared<T> s;
  __shared__ Queries q;
  const SortedQueries& sorted = p.sorted;
  const MembersPlace at(sorted, p.k.size(3));
  const int t = threadIdx.x, row = weighing_row(), eight = weighing_first();
  clear_behind(sorted, at, dq);
  if (at.rows == 0) return;
  find_queries(sorted, at, q);
  __syncthreads();
  if (t < side) {
    s.own[0][t] = t < at.rows ? &p.q(at.b, q.query[t], at.h, 0) : nullptr;
    s.own[1][t] = t < at.rows ? &dout(at.b, q.query[t], at.h, 0) : nullptr;
  }
  T gradient[4][4] = {};
  for (int low = 0; low < at.rows;) {
    const std::int32_t c = q.cluster[low];
    const int high = at.end_of(sorted, c);
    const bool idle = idle_warp(low, high), inside = row >= low && row < high;
    const std::int32_t* const chosen = p.topk + (at.head * sorted.clusters + c) * p.count;
    const T m = p.mass != nullptr ? p.mass[at.head * sorted.clusters + c] : T(1);
    T* const z = &s.first[row][eight];
    T* const x = &s.second[row][eight];
    T maximum = -infinity<T>, sum = 0, moment = 0, log_sum = infinity<T>, dmass = 0;
    for (int time = 0; time < 2; ++time) {
      for (i64 begin = 0; begin < p.count && chosen[begin] >= 0; begin += side) {
        if (time == 0 || p.count > side) {
          __syncthreads();  // the previous tile's keys have been read
          take_keys(p, at, chosen, begin, s, q);
          multiply(s, s.own[0], p.q.stride(3), s.other[0], p.k.stride(3), p.k.size(3),
                   p.temperature, idle, s.first);
          multiply(s, s.own[1], dout.stride(3), s.other[1], p.v.stride(3), p.v.size(3), T(1), idle,
                   s.second);
          __syncthreads();
          const unsigned seen = seen_of_eight(q, row, eight, low, high, p.causal);
          unsigned kept = 0;
          if (seen != 0)
            kept = mask.keeps_eight(at.head * sorted.N + q.query[row], begin + eight);
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            if ((seen >> j & 1) == 0) z[j] = -infinity<T>;
            x[j] = (kept >> j & 1) != 0 ? static_cast<T>(mask.factor) * x[j] : T(0);
          }
        }
        if (time == 0) {
          T most = maximum;
#pragma unroll
          for (int j = 0; j < 8; ++j) most = Largest::of(most, z[j]);
          most = of_row<Largest>(most);
          const T factor = most == maximum ? T(1) : std::exp(maximum - most);
          sum *= factor;
          moment *= factor;
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            const T weight = z[j] == -infinity<T> ? T(0) : std::exp(z[j] - most);
            sum += weight;
            moment += weight * x[j];
          }
          maximum = most;
        } else {
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            const T weight = z[j] == -infinity<T> ? T(0) : std::exp(z[j] - log_sum);
            x[j] = m * weight * (x[j] - dmass);
          }
          accumulate(s, s.second, s.other[0], p.k.stride(3), at.column, p.k.size(3), idle,
                     gradient);
        }
      }
      if (time == 1) continue;
      sum = of_row<Added>(sum);
      moment = of_row<Added>(moment);
      if (sum != 0) {
        log_sum = maximum + std::log(sum);
        dmass = moment / sum;
      }
      if (inside && eight == 0 && at.column == 0) {
        sums.log_sums[at.head * sorted.N + q.query[row]] = log_sum;
        sums.dmass[at.head * sorted.N + q.query[row]] = dmass;
      }
    }
    low = high;
  }
  each_sum(at.column, p.k.size(3), gradient, [&](int i, i64 e, T value) {
    if (i < at.rows) dq(at.b, q.query[i], at.h, e) = p.temperature * value;
  });
}

unsigned blocks_of(const SortedQueries& p, i64 width) {
  const i64 wide = (width + columns - 1) / columns, tall = (p.N + side - 1) / side;
  return static_cast<unsigned>(p.B * p.H * tall * wide);
}

// A team of threads has a cluster, whose members are contiguous.
template <class T>
struct SummedMass {
  SortedQueries p;
  const T* of_member;
  const T* mass;
  bool detach;
  T* dmass;
  T* delta;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const i64 head = row / p.clusters, c = row % p.clusters;
    const std::int32_t* const begins = p.begins + head * (p.clusters + 1) + c;
    double sum = 0;
    for (i64 i = begins[0] + team.rank(); i < begins[1]; i += Team::threads) {
      sum += static_cast<double>(of_member[head * p.N + p.order[head * p.N + i]]);
    }
    sum = team.sum(sum);
    if (team.rank() != 0) return;
    dmass[row] = detach ? T(0) : static_cast<T>(sum);
    if (detach) delta[row] -= mass[row] * static_cast<T>(sum);
  }
};

}  // namespace

template <class T>
void MembersKernels<T>::forward(const Cuda& device, const MembersAttention<T>& p,
                                View<const T, 4> bottom, View<T, 4> out) {
  if (p.heads() * p.sorted.N == 0) return;
  const DropoutMask mask = p.mask();
  start(name, device, blocks_of(p.sorted, p.v.size(3)), threads, 0, forward_kernel<T>, p, mask,
        bottom, out);
}

template <class T>
void MembersKernels<T>::backward(const Cuda& device, const MembersAttention<T>& p,
                                 View<const T, 4> dout, View<T, 4> dq, const MemberSums<T>& sums) {
  if (p.heads() * p.sorted.N == 0) return;
  const DropoutMask mask = p.mask();
  start(name, device, blocks_of(p.sorted, p.k.size(3)), threads, 0, backward_kernel<T>, p, mask,
        dout, dq, sums);
}

template <class T>
void MembersKernels<T>::sum_of_mass(const Cuda& device, const MembersAttention<T>& p,
                                    const MemberSums<T>& sums, bool detach, T* dmass, T* delta) {
  for_rows(name, device, p.heads() * p.sorted.clusters, 32,
           SummedMass<T>{p.sorted, sums.dmass, p.mass, detach, dmass, delta});
}

template struct MembersKernels<float>;
template struct MembersKernels<double>;

}  // namespace weft
