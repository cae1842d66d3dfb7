// CUDA kernel of dropout. 8 bytes an element in f32, and an eighth of ten rounds of Philox, about
// 15 integer operations: bound by memory bandwidth (estimated).
#include "ops/dropout/kernels.h"
#include "ops/dropout/warp_mask.cuh"

namespace weft {
namespace {

constexpr unsigned threads = 128;

// A warp processes 256 columns of a row at a time.
template <class S>
__global__ void __launch_bounds__(threads)
    each_dropped(DropoutMask mask, i64 rows, i64 width, const S* x, S* y) {
  const i64 chunks = (width + WarpMask::columns - 1) / WarpMask::columns;
  const i64 warps = threads / 32 * i64{gridDim.x};
  const auto factor = static_cast<Accumulator<S>>(mask.factor);
  for (i64 unit = threads / 32 * i64{blockIdx.x} + threadIdx.x / 32;
       unit < rows * chunks; unit += warps) {
    const i64 row = unit / chunks, begin = unit % chunks * WarpMask::columns;
    const WarpMask kept(mask, row, begin, width);
#pragma unroll
    for (int k = 0; k < WarpMask::each; ++k) {
      if (begin + 32 * k >= width) break;
      const i64 j = begin + 32 * k + threadIdx.x % 32;
      const bool keep = kept.keeps(k);
      if (j < width) {
        y[row * width + j] = keep ? convert<S>(widen(x[row * width + j]) * factor) : S(0);
      }
    }
  }
}

}  // namespace

// If the width of the rows is a multiple of eight, indices continue from row to row: one long row.
template <class Device, class S>
void DropoutKernels<Device, S>::apply(const Device& device, const DropoutMask& mask,
                                      i64 count, const S* x, S* y) {
  if (count == 0) return;
  const i64 width = mask.columns % DropoutMask::pieces == 0 ? count : mask.columns;
  const i64 rows = count / width;
  const i64 units = rows * ((width + WarpMask::columns - 1) / WarpMask::columns);
  start("dropout", device, blocks_for(device, units * 32, threads), threads, 0, each_dropped<S>,
        mask, rows, width, x, y);
}

template struct DropoutKernels<Cuda, float>;
template struct DropoutKernels<Cuda, double>;
template struct DropoutKernels<Cuda, bf16>;

}  // namespace weft
