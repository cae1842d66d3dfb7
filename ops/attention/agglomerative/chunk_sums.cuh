// Combines the sums of single chunks into those that the chunks need of each other. Rows of `width`
// f64 are in [B, chunks, width]: (S, U) of the references before a chunk, (g, G) of the queries
// after it. Equations: agglomerative.h.
#pragma once

#include "runtime/cuda/stream.h"

namespace weft::chunked {

// How the sums of single chunks are combined.
enum class ChunkSums {
  upwards,    // row c += Σ of the rows below c
  downwards,  // row c += Σ of the rows above c
  total,      // the sum of all, one row for each batch item
};

inline constexpr unsigned most_runs = 16;

// A warp has 32 columns of a batch item's rows and a range of the chunks: it sums them, adds the
// sums of the earlier ranges, and walks its range again.
static __global__ void combine_kernel(ChunkSums how, i64 chunks, i64 width,
                                      const double* from, double* to) {
  __shared__ double totals[most_runs][32];
  const i64 groups = (width + 31) / 32, b = blockIdx.x / groups;
  const i64 column = blockIdx.x % groups * 32 + threadIdx.x;
  const i64 length = (chunks + blockDim.y - 1) / blockDim.y;
  const i64 begin = threadIdx.y * length;
  const i64 end = begin + length < chunks ? begin + length : chunks;
  const bool there = column < width;
  const auto at = [&](i64 i) {
    return (b * chunks + (how == ChunkSums::downwards ? chunks - 1 - i : i)) * width + column;
  };
  double total = 0;
#pragma unroll 8
  for (i64 i = begin; i < end; ++i) total += there ? from[at(i)] : 0;
  totals[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (!there) return;
  double running = 0;
  for (unsigned run = 0; run < threadIdx.y; ++run) running += totals[run][threadIdx.x];
  if (how == ChunkSums::total) {
    if (threadIdx.y + 1 == blockDim.y) to[b * width + column] = running + total;
    return;
  }
#pragma unroll 8
  for (i64 i = begin; i < end; ++i) {
    running += from[at(i)];
    to[at(i)] = running;
  }
}

// `to` may be `from`, but not for the total.
inline void combine_chunks(const Cuda& device, ChunkSums how, i64 B, i64 chunks,
                           i64 width, const double* from, double* to) {
  // With at most two rows the first one is zeros, and the second is final.
  if (B == 0 || (how != ChunkSums::total && chunks <= 2)) return;
  const i64 wanted = chunks > 0 ? (chunks + 7) / 8 : 1;  // the total of none is 0
  const dim3 block(32, static_cast<unsigned>(wanted < most_runs ? wanted : most_runs));
  start("agglomerative", device, static_cast<unsigned>(B * ((width + 31) / 32)), block, 0,
        combine_kernel, how, chunks, width, from, to);
}

}  // namespace weft::chunked
