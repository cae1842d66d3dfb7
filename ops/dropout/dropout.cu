// CUDA kernel of dropout. 8 bytes an element in f32, and an eighth of ten rounds of Philox, about 15
// operations on integers: the bandwidth of the memory is the limit. Estimated, not measured.
//
// 16 blocks of 128 threads on a multiprocessor: all of its threads (28 registers).
#include "ops/dropout/kernels.h"
#include "ops/dropout/warp_mask.cuh"

namespace weft {
namespace {

constexpr unsigned threads = 128;

// A warp has 256 columns of a row at a time.
template <class T>
__global__ void __launch_bounds__(threads)
    each_dropped(DropoutMask mask, std::int64_t rows, std::int64_t width, const T* x, T* y) {
  const std::int64_t chunks = (width + WarpMask::columns - 1) / WarpMask::columns;
  const std::int64_t warps = threads / 32 * std::int64_t{gridDim.x};
  const T factor = static_cast<T>(mask.factor);
  for (std::int64_t unit = threads / 32 * std::int64_t{blockIdx.x} + threadIdx.x / 32;
       unit < rows * chunks; unit += warps) {
    const std::int64_t row = unit / chunks, begin = unit % chunks * WarpMask::columns;
    const WarpMask kept(mask, row, begin, width);
#pragma unroll
    for (int k = 0; k < WarpMask::each; ++k) {
      if (begin + 32 * k >= width) break;
      const std::int64_t j = begin + 32 * k + threadIdx.x % 32;
      const bool keep = kept.keeps(k);
      if (j < width) y[row * width + j] = keep ? x[row * width + j] * factor : T(0);
    }
  }
}

}  // namespace

// Where rows are a multiple of eight wide, the indices run on from row to row: one long row.
template <class Device, class T>
void DropoutKernels<Device, T>::apply(const Device& device, const DropoutMask& mask,
                                      std::int64_t count, const T* x, T* y) {
  if (count == 0) return;
  const std::int64_t width = mask.columns % DropoutMask::pieces == 0 ? count : mask.columns;
  const std::int64_t rows = count / width;
  const std::int64_t units = rows * ((width + WarpMask::columns - 1) / WarpMask::columns);
  start("dropout", device, blocks_for(device, units * 32, threads), threads, 0, each_dropped<T>,
        mask, rows, width, x, y);
}

template struct DropoutKernels<Cuda, float>;
template struct DropoutKernels<Cuda, double>;

}  // namespace weft
