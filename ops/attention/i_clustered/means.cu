// CUDA kernels of attention of the means of clusters; the equations are in means.cuh, the ownership
// in tiles.cuh.
//
// For one head of C = 100, S = 2048, E = M = 64 in f32 (estimates, not measured): 52 MFLOP forward,
// 200 MFLOP backward (the products are computed for dq̄ and again for dk and dv), over 1 MB of keys
// and values that four blocks read through the L2 cache: bound by shared memory. Forward has a
// block for 32 means and 64 columns of v, so ⌈C/32⌉ B H blocks; dk and dv have one for 32 keys.
#include <cmath>

#include "ops/attention/by_type.h"
#include "ops/attention/i_clustered/means.cuh"
#include "ops/attention/i_clustered/tiles.cuh"
#include "ops/attention/infinity.h"

namespace weft {
namespace {

using namespace tiles;

constexpr const char* name = "i-clustered";

// The work of a block: one batch item and head, 32 rows and 64 columns of a result.
struct Place {
  i64 head, b, h, first, column;

  __device__ Place(i64 H, i64 rows, i64 width) {
    const i64 wide = (width + columns - 1) / columns, tall = (rows + side - 1) / side;
    column = blockIdx.x % wide * columns;
    first = blockIdx.x / wide % tall * side;
    head = blockIdx.x / wide / tall;
    b = head / H;
    h = head % H;
  }
};
unsigned blocks_of(i64 heads, i64 rows, i64 width) {
  const i64 wide = (width + columns - 1) / columns, tall = (rows + side - 1) / side;
  return static_cast<unsigned>(heads * tall * wide);
}

// The sizes of the clusters from `first` on of one head, at most 32 of these.
template <class T>
__device__ std::int32_t members(const MeansAttention<T>& p, i64 head, i64 first) {
  const std::int32_t* const begins = p.begins + head * (p.C() + 1);
  return begins[first + side < p.C() ? first + side : p.C()] - begins[first];
}
template <class T>
__device__ bool is_empty(const MeansAttention<T>& p, i64 head, i64 c) {
  if (c >= p.C()) return true;
  const std::int32_t* const begins = p.begins + head * (p.C() + 1);
  return begins[c] == begins[c + 1];
}

// A bit for each of the eight keys from `key` on: whether it is in T_c.
template <class T>
__device__ unsigned chosen_of_eight(const MeansAttention<T>& p, i64 head, i64 c,
                                    i64 key) {
  if (c >= p.C()) return 0;
  return chosen_from(p.topk + (head * p.C() + c) * p.count, p.count, key, 8);
}

// The least number of resident blocks on a multiprocessor: without it nvcc spills.
template <class T>
constexpr int forward_blocks = by_type<T>(7, 4);

template <class T>
__global__ void __launch_bounds__(threads, forward_blocks<T>)
    forward_kernel(MeansAttention<T> p, DropoutMask mask, View<T, 4> y, T* log_sums, T* mass) {
  __shared__ Shared<T> s;
  __shared__ T factors[side];  // of the sums so far; at the end, of the result
  const Place at(p.H(), p.C(), p.M());
  const int t = threadIdx.x, row = weighing_row(), eight = weighing_first();
  const i64 c = at.first + row, keys = length_of(p.lengths, at.b, p.S());
  const bool none = is_empty(p, at.head, c);
  T maximum = -infinity<T>, sum = 0, top = 0;  // of the row; the sums of this thread's keys
  T o[4][4] = {};
  if (t < side) {
    const bool real = !is_empty(p, at.head, at.first + t);
    s.own[0][t] = real ? &p.means(at.b, at.first + t, at.h, 0) : nullptr;
  }
  if (keys == 0 || members(p, at.head, at.first) == 0) {
    for (i64 i = t; i < side * columns; i += threads) {
      const i64 other = at.first + i / columns, m = at.column + i % columns;
      if (other < p.C() && m < p.M()) y(at.b, other, at.h, m) = 0;
    }
    if (eight == 0 && at.column == 0 && c < p.C()) {
      log_sums[at.head * p.C() + c] = infinity<T>;
      mass[at.head * p.C() + c] = 0;
    }
    return;
  }
  for (i64 key = 0; key < keys; key += side) {
    if (t < side) {
      const bool real = key + t < keys;
      s.other[0][t] = real ? &p.k(at.b, key + t, at.h, 0) : nullptr;
      s.other[1][t] = real ? &p.v(at.b, key + t, at.h, 0) : nullptr;
    }
    multiply(s, s.own[0], p.means.stride(3), s.other[0], p.k.stride(3), p.E(), p.temperature, false,
             s.first);
    __syncthreads();
    T* const z = &s.first[row][eight];
    T most = maximum;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (key + eight + j < keys) most = Largest::of(most, z[j]);
    }
    most = of_row<Largest>(most);
    const T factor = most == maximum ? T(1) : std::exp(maximum - most);
    const unsigned chosen = none ? 0 : chosen_of_eight(p, at.head, c, key + eight);
    const unsigned kept = none ? 0 : mask.keeps_eight(at.head * p.C() + c, key + eight);
    sum *= factor;
    top *= factor;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const T weight = key + eight + j < keys ? std::exp(z[j] - most) : T(0);
      const bool on = (chosen >> j & 1) != 0;
      sum += weight;
      top += on ? weight : T(0);
      z[j] = !on && (kept >> j & 1) != 0 ? static_cast<T>(mask.factor) * weight : T(0);
    }
    maximum = most;
    if (eight == 0) factors[row] = factor;
    __syncthreads();
    scale_rows(factors, o);
    accumulate(s, s.first, s.other[1], p.v.stride(3), at.column, p.M(), false, o);
  }
  sum = of_row<Added>(sum);
  top = of_row<Added>(top);
  __syncthreads();
  if (eight == 0) {
    factors[row] = none || sum == 0 ? T(0) : 1 / sum;
    if (at.column == 0 && c < p.C()) {
      log_sums[at.head * p.C() + c] = none || sum == 0 ? infinity<T> : maximum + std::log(sum);
      mass[at.head * p.C() + c] = none || sum == 0 ? T(0) : top / sum;
    }
  }
  __syncthreads();
  each_sum(at.column, p.M(), o, [&](int i, i64 m, T x) {
    if (at.first + i < p.C())
      y(at.b, at.first + i, at.h, m) = factors[i] == 0 ? T(0) : x * factors[i];
  });
}

// Further inputs of backward.
template <class T>
struct Backward {
  const T* log_sums;
  const T* delta;
  const T* dmass;
  View<const T, 4> dy;
};

// z and dy · v of a cluster and eight keys, in steps of `stride`, are replaced by d a (0 on T) and
// dz.
template <class T>
__device__ void differentiate(const MeansAttention<T>& p, const DropoutMask& mask,
                              const Backward<T>& g, i64 head, i64 c,
                              i64 key, i64 keys, T* z, T* x, int stride) {
  const bool none = is_empty(p, head, c);
  const i64 at = head * p.C() + c;
  const T log_sum = none ? infinity<T> : g.log_sums[at], delta = none ? T(0) : g.delta[at];
  const T dmass = none ? T(0) : g.dmass[at];
  const unsigned chosen = none ? 0 : chosen_of_eight(p, head, c, key);
  const unsigned kept = none ? 0 : mask.keeps_eight(at, key);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const bool real = !none && key + j < keys, on = (chosen >> j & 1) != 0;
    const T factor = (kept >> j & 1) != 0 ? static_cast<T>(mask.factor) : T(0);
    const T weight = real ? std::exp(z[j * stride] - log_sum) : T(0);
    const T gradient = on ? dmass : factor * x[j * stride];
    z[j * stride] = on ? T(0) : factor * weight;
    x[j * stride] = real ? weight * (gradient - delta) : T(0);
  }
}

// dq̄: a block has 32 means and streams over all keys.
template <class T>
__global__ __launch_bounds__(threads) void means_kernel(MeansAttention<T> p, DropoutMask mask,
                                                        Backward<T> g, View<T, 4> dmeans) {
  __shared__ Shared<T> s;
  const Place at(p.H(), p.C(), p.E());
  const int t = threadIdx.x, row = weighing_row(), eight = weighing_first();
  const i64 keys = length_of(p.lengths, at.b, p.S());
  const i64 end = members(p, at.head, at.first) > 0 ? keys : 0;
  T sums[4][4] = {};
  if (t < side) {
    const bool real = !is_empty(p, at.head, at.first + t);
    s.own[0][t] = real ? &p.means(at.b, at.first + t, at.h, 0) : nullptr;
    s.own[1][t] = real ? &g.dy(at.b, at.first + t, at.h, 0) : nullptr;
  }
  for (i64 key = 0; key < end; key += side) {
    if (t < side) {
      const bool real = key + t < keys;
      s.other[0][t] = real ? &p.k(at.b, key + t, at.h, 0) : nullptr;
      s.other[1][t] = real ? &p.v(at.b, key + t, at.h, 0) : nullptr;
    }
    multiply(s, s.own[0], p.means.stride(3), s.other[0], p.k.stride(3), p.E(), p.temperature, false,
             s.first);
    multiply(s, s.own[1], g.dy.stride(3), s.other[1], p.v.stride(3), p.M(), T(1), false, s.second);
    __syncthreads();
    differentiate(p, mask, g, at.head, at.first + row, key + eight, keys, &s.first[row][eight],
                  &s.second[row][eight], 1);
    accumulate(s, s.second, s.other[0], p.k.stride(3), at.column, p.E(), false, sums);
  }
  each_sum(at.column, p.E(), sums, [&](int i, i64 e, T x) {
    if (at.first + i < p.C()) dmeans(at.b, at.first + i, at.h, e) = p.temperature * x;
  });
}

// dk and dv: a block has 32 keys and streams over all clusters.
template <class T>
__global__ __launch_bounds__(threads) void keys_kernel(MeansAttention<T> p, DropoutMask mask,
                                                       Backward<T> g, View<T, 4> dk,
                                                       View<T, 4> dv) {
  __shared__ Shared<T> s;
  const Place at(p.H(), p.S(), p.E() > p.M() ? p.E() : p.M());
  const int t = threadIdx.x, row = weighing_row(), eight = weighing_first();
  const i64 keys = length_of(p.lengths, at.b, p.S());
  T of_keys[4][4] = {}, of_values[4][4] = {};
  if (t < side) {
    const bool real = at.first + t < keys;
    s.own[0][t] = real ? &p.k(at.b, at.first + t, at.h, 0) : nullptr;
    s.own[1][t] = real ? &p.v(at.b, at.first + t, at.h, 0) : nullptr;
  }
  const i64 end = at.first < keys ? p.C() : 0;
  for (i64 c = 0; c < end; c += side) {
    if (members(p, at.head, c) == 0) continue;
    if (t < side) {
      const bool real = !is_empty(p, at.head, c + t);
      s.other[0][t] = real ? &p.means(at.b, c + t, at.h, 0) : nullptr;
      s.other[1][t] = real ? &g.dy(at.b, c + t, at.h, 0) : nullptr;
    }
    multiply(s, s.own[0], p.k.stride(3), s.other[0], p.means.stride(3), p.E(), p.temperature, false,
             s.first);
    multiply(s, s.own[1], p.v.stride(3), s.other[1], g.dy.stride(3), p.M(), T(1), false, s.second);
    __syncthreads();
    differentiate(p, mask, g, at.head, c + row, at.first + eight, keys, &s.first[eight][row],
                  &s.second[eight][row], side + 1);
    accumulate(s, s.first, s.other[1], g.dy.stride(3), at.column, p.M(), false, of_values);
    accumulate(s, s.second, s.other[0], p.means.stride(3), at.column, p.E(), false, of_keys);
  }
  each_sum(at.column, p.E(), of_keys, [&](int i, i64 e, T x) {
    if (at.first + i < p.S()) dk(at.b, at.first + i, at.h, e) = p.temperature * x;
  });
  each_sum(at.column, p.M(), of_values, [&](int i, i64 m, T x) {
    if (at.first + i < p.S()) dv(at.b, at.first + i, at.h, m) = x;
  });
}

}  // namespace

template <class T>
void MeansKernels<T>::forward(const Cuda& device, const MeansAttention<T>& p, View<T, 4> y,
                              T* log_sums, T* mass) {
  if (p.B() * p.H() == 0) return;
  const DropoutMask mask = p.mask();
  start(name, device, blocks_of(p.B() * p.H(), p.C(), p.M()), threads, 0, forward_kernel<T>, p,
        mask, y, log_sums, mass);
}

template <class T>
void MeansKernels<T>::backward(const Cuda& device, const MeansAttention<T>& p, const T* log_sums,
                               const T* delta, const T* dmass, View<const T, 4> dy,
                               View<T, 4> dmeans, View<T, 4> dk, View<T, 4> dv) {
  const i64 heads = p.B() * p.H();
  if (heads == 0) return;
  const DropoutMask mask = p.mask();
  const Backward<T> g{log_sums, delta, dmass, dy};
  start(name, device, blocks_of(heads, p.S(), p.E() > p.M() ? p.E() : p.M()), threads, 0,
        keys_kernel<T>, p, mask, g, dk, dv);
  start(name, device, blocks_of(heads, p.C(), p.E()), threads, 0, means_kernel<T>, p, mask, g,
        dmeans);
}

template struct MeansKernels<float>;
template struct MeansKernels<double>;

}  // namespace weft
