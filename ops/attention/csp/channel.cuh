// Shared by the CUDA kernels of channel-wise sample permutation.
//
// A block of 32 × 4 threads has 32 channels of some rows: lane x is the channel, and the four warps
// share the rows. What is shifted to stands in one row, where neighbours have neighbours; what is
// shifted from, only where neighbouring channels have one shift.
#pragma once

#include "ops/attention/csp/csp.h"
#include "runtime/cuda/loops.h"

namespace weft {

// Defined in csp_sort.cu for csp.cu.
template <class T>
struct CspSortKernels {
  // Records the order of groups of more than two.
  static void order(const Cuda&, const CspProblem&, View<const T, 4> v);
};

}  // namespace weft

namespace weft::permuted {

constexpr int lanes = 32, warps = 4;

// One channel of a batch item.
template <class T>
struct Channel {
  T* at;
  i64 stride;

  __device__ Channel(const View<T, 4>& x, i64 b, i64 c)
      : at(&x(b, 0, c / x.size(3), c % x.size(3))), stride(x.stride(1)) {}
  __device__ T& operator[](i64 n) const { return at[n * stride]; }
};

// The rows and channels of a block, and of this thread.
struct Tile {
  i64 b, index, begin, first, c, L;  // index: among the tiles of the batch item
  bool there;  // this thread has a channel

  __device__ Tile(const CspProblem& p, i64 tiles, i64 rows) {
    const i64 across = (p.C + lanes - 1) / lanes, rest = blockIdx.x / across;
    first = blockIdx.x % across * lanes;
    index = rest % tiles;
    begin = index * rows;
    b = rest / tiles;
    c = first + threadIdx.x;
    L = p.length(b);
    there = c < p.C;
  }
};

// Launches `kernel` with tiles × ⌈C / 32⌉ blocks for each batch item.
template <class... P, class... A>
void start_tiles(const Cuda& device, const CspProblem& p, i64 tiles,
                 void (*kernel)(P...), const A&... arguments) {
  const i64 blocks = p.B * tiles * ((p.C + lanes - 1) / lanes);
  start("csp", device, static_cast<unsigned>(blocks), dim3(lanes, warps), 0, kernel, arguments...);
}

}  // namespace weft::permuted
