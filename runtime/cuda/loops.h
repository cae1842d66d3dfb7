// The two shapes that most kernels have: a function of every element, and a function of every row
// by a team of threads. And the collective operations of a team. For .cu files.
#pragma once

#include "runtime/cuda/stream.h"

namespace weft {

// --- elements

inline constexpr unsigned element_threads = 256, elements_a_thread = 4;

// A block has tiles of 1024 elements; its thread t has the elements t, t + 256, … of each, so that
// accesses are coalesced and four loads are in flight at once.
template <class F>
__global__ void each_element(i64 count, F f) {
  constexpr i64 tile = element_threads * elements_a_thread;
  for (i64 begin = tile * blockIdx.x; begin < count; begin += tile * gridDim.x) {
#pragma unroll
    for (unsigned k = 0; k < elements_a_thread; ++k) {
      const i64 i = begin + k * element_threads + threadIdx.x;
      if (i < count) f(i);
    }
  }
}

// Calls f(i) for i = 0 … count − 1, in any order. F is a struct with `__device__ operator()`.
template <class F>
void for_elements(const char* name, const Cuda& device, i64 count, const F& f) {
  if (count == 0) return;
  const i64 a_thread = elements_a_thread;
  start(name, device, blocks_for(device, (count + a_thread - 1) / a_thread, element_threads),
        element_threads, 0, each_element<F>, count, f);
}

// --- teams

struct Added {
  template <class T>
  static __device__ T of(T a, T b) {
    return a + b;
  }
};
struct Largest {  // NaN is not propagated
  template <class T>
  static __device__ T of(T a, T b) {
    return a < b ? b : a;
  }
};

// Over `lanes` neighbouring threads of a warp, a power of two. All of them get the result, and the
// order of a sum is fixed.
template <int lanes, class Op, class T>
__device__ T over_lanes(T x) {
#pragma unroll
  for (int by = lanes / 2; by > 0; by /= 2) x = Op::of(x, __shfl_xor_sync(0xffffffffu, x, by));
  return x;
}

// The threads of a warp. Every lane gets the result.
struct WarpTeam {
  static constexpr unsigned threads = 32;

  __device__ unsigned rank() const { return threadIdx.x % 32; }
  __device__ void wait() const { __syncwarp(); }

  template <class Op, class T>
  __device__ T all(T x) const {
    return over_lanes<32, Op>(x);
  }
  template <class T>
  __device__ T sum(T x) const {
    return all<Added>(x);
  }
  template <class T>
  __device__ T max(T x) const {
    return all<Largest>(x);
  }
};

// The threads of a block, a multiple of 32: each warp reduces by itself, then every thread reduces
// the warps' results in order.
template <unsigned N>
struct BlockTeam {
  static constexpr unsigned threads = N;

  __device__ unsigned rank() const { return threadIdx.x; }
  __device__ void wait() const { __syncthreads(); }

  template <class Op, class T>
  __device__ T all(T x) const {
    __shared__ T of_warp[N / 32];
    x = WarpTeam{}.all<Op>(x);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = of_warp[0];
#pragma unroll
    for (unsigned i = 1; i < N / 32; ++i) x = Op::of(x, of_warp[i]);
    __syncthreads();  // before the next call writes
    return x;
  }
  template <class T>
  __device__ T sum(T x) const {
    return all<Added>(x);
  }
  template <class T>
  __device__ T max(T x) const {
    return all<Largest>(x);
  }
};

// --- rows

inline constexpr unsigned row_threads = 256;
inline constexpr i64 warp_columns = 1024;  // longer rows are a block's work

template <class Team, class F>
__global__ void each_row(i64 rows, F f) {
  const i64 teams = row_threads / Team::threads;
  const i64 step = teams * gridDim.x;
  for (i64 row = teams * blockIdx.x + threadIdx.x / Team::threads; row < rows; row += step) {
    f(Team{}, row);
  }
}

// Calls f(team, row) for every row, each by all threads of a team: a warp, or a block for long
// rows. F is a struct with `template <class Team> __device__ operator()`.
template <class F>
void for_rows(const char* name, const Cuda& device, i64 rows, i64 columns, const F& f) {
  if (rows == 0) return;
  if (columns <= warp_columns) {
    start(name, device, blocks_for(device, rows * 32, row_threads), row_threads, 0,
          each_row<WarpTeam, F>, rows, f);
  } else {
    start(name, device, blocks_for(device, rows * row_threads, row_threads), row_threads, 0,
          each_row<BlockTeam<row_threads>, F>, rows, f);
  }
}

}  // namespace weft
