// Sums over the rows of matrices, several at a time, in f64 and in a fixed order:
//
//     partial[q, o, k, j] = Σ_{i in piece k} f(o, i, j)_q        q = 0 … Q − 1
//
// f is a struct with `__device__ void operator()(o, i, j, double (&sums)[Q]) const`, which adds to
// them.
#pragma once

#include "ops/reduce/kernels.h"
#include "runtime/cuda/loops.h"

namespace weft {

// A block takes one strip of columns of one piece of rows at a time. Its threads form `abreast`
// rows of `width`: thread (r, j) adds the rows r, r + abreast, … of column j; then those of row 0
// add the partial sums of the others.
template <int Q, class F, class To>
__global__ void __launch_bounds__(ColumnStrips::threads)
    each_column_sum(SumSizes s, i64 pieces, F f, To* partial) {
  __shared__ double of_thread[Q][ColumnStrips::threads];
  const ColumnStrips strips(s.inner);
  const i64 piece = (s.n + pieces - 1) / pieces;
  const auto width = static_cast<unsigned>(strips.width);
  const auto abreast = static_cast<unsigned>(strips.abreast);
  const unsigned column = threadIdx.x % width, row = threadIdx.x / width;
  for (i64 work = blockIdx.x; work < s.outer * pieces * strips.count; work += gridDim.x) {
    const i64 j = work % strips.count * width + column, at = work / strips.count;
    const i64 o = at / pieces, k = at % pieces;
    const i64 end = std::min(s.n, (k + 1) * piece);
    double sums[Q] = {};
    if (row < abreast && j < s.inner) {
#pragma unroll 4
      for (i64 i = k * piece + row; i < end; i += abreast) f(o, i, j, sums);
    }
#pragma unroll
    for (int q = 0; q < Q; ++q) of_thread[q][threadIdx.x] = sums[q];
    __syncthreads();
    if (row == 0 && j < s.inner) {
#pragma unroll
      for (int q = 0; q < Q; ++q) {
        double total = 0;
        for (unsigned r = 0; r < abreast; ++r) total += of_thread[q][r * width + column];
        partial[((q * s.outer + o) * pieces + k) * s.inner + j] = convert<To>(total);
      }
    }
    __syncthreads();  // before the next strip writes
  }
}

template <int Q, class F, class To>
void column_sums(const char* name, const Cuda& device, const SumSizes& s, i64 pieces,
                 const F& f, To* partial) {
  constexpr i64 threads = ColumnStrips::threads;
  const i64 blocks = s.outer * pieces * ColumnStrips(s.inner).count;
  if (blocks * s.inner == 0) return;
  start(name, device, blocks_for(device, blocks * threads, threads), threads, 0,
        each_column_sum<Q, F, To>, s, pieces, f, partial);
}

}  // namespace weft
