// What the kernels of the engine for pairs on tensor cores share: tiles that arrive while others
// are multiplied. For .cu files.
#pragma once

#include "ops/attention/engines/pairs/pairs_tile.cuh"
#include "ops/attention/mma_tile.cuh"

namespace weft {

static_assert(most_mma_width == widest_stored_head);

// Exponentials are powers of two.
inline constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

// A tile of the walk whose rows are in, or on their way to, one of two stages of shared memory.
struct StagedTile {
  i64 first = 0;
  int count = 0;
  bool whole = true;

  template <class T>
  __device__ explicit StagedTile(const TileWalk<T>& walk)
      : first(walk.first), count(walk.count), whole(walk.whole) {}
};

}  // namespace weft
