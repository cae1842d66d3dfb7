// The dropout mask of 256 columns of a row, drawn by a warp: one Philox draw for the eight columns
// of each thread.
#pragma once

#include "ops/dropout/mask.h"
#include "runtime/cuda/loops.h"

namespace weft {

// Lane l draws for the columns begin + 8 l … begin + 8 l + 7, and processes the columns begin + 32
// k + l, so that accesses are coalesced; a shuffle moves the draws to the lanes that need them. All
// lanes construct one together, and query it together.
class WarpMask {
 public:
  static constexpr int each = 8;  // columns of a lane: k = 0 … 7
  static constexpr i64 columns = 32 * each;

  // `begin` is a multiple of eight; `end` is the end of the row.
  __device__ WarpMask(const DropoutMask& mask, i64 row, i64 begin,
                      i64 end) {
    const i64 column = begin + threadIdx.x % 32 * DropoutMask::pieces;
    if (column >= end) return;
    kept_ = mask.keeps_eight(row, column);
  }

  __device__ bool keeps(int k) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    return __shfl_sync(0xffffffffu, kept_, 4 * k + lane / 8) >> lane % 8 & 1;
  }

 private:
  unsigned kept_ = 0;
};

}  // namespace weft
