// The gradient of a bias by distance, in a fixed order: shared by the kernels of pairs backward.
// For .cu files.
#pragma once

#include "ops/attention/engines/pairs/pairs.h"
#include "ops/attention/score_tile.cuh"
#include "runtime/cuda/workspace.h"

namespace weft {

// dz by distance: each block of `rows` queries has sums of its own, for the distances of its pairs,
// and add_distances() adds those of all blocks. Block `tile` of a part stores j − i at index j − i
// − first(tile).
template <class T>
struct DistanceSums {
  View<T, 3> sums;  // [B H, tiles, span]; no data: not wanted
  i64 rows;
  Staircase begin;  // of the keys

  __host__ __device__ i64 first(i64 tile) const {
    return begin.at(tile * rows) / 8 * 8 - tile * rows - (rows - 1);
  }
};

// Adds a tile dz [rows, 64] in shared memory along its diagonals, each by one thread; `to` is the
// element of j − i = key − query − (rows − 1), the lowest corner.
template <int rows, class T>
__device__ void add_diagonals(const T* dz, T* to) {
  for (int t = threadIdx.x; t < rows + tile_columns - 1; t += tile_threads) {
    T sum = 0;
    for (int row = 0; row < rows; ++row) {
      const int column = t - (rows - 1) + row;
      if (column >= 0 && column < tile_columns) sum += dz[row * weight_stride<T> + column];
    }
    to[t] += sum;
  }
}

// One number of a table by distance: the sum of the blocks' sums, in order.
template <class T>
struct AddDistances {
  DistanceSums<T> distances;
  BiasGradient<T> to;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const i64 H = to.distances.size(1), span = distances.sums.size(2);
    for (i64 e = team.rank(); e < to.distances.size(2); e += Team::threads) {
      T sum = 0;
      for (i64 tile = 0; tile < distances.sums.size(1); ++tile) {
        const i64 place = e - to.origin - distances.first(tile);
        if (place >= 0 && place < span) sum += distances.sums(row, tile, place);
      }
      to.distances(row / H, row % H, e) += sum;
    }
  }
};

// Calls run(sums), which queues the kernel that adds to them, for blocks of `rows` queries; and
// adds their results. The sums have no data if the gradient is not by distance.
template <class S, class Run>
void sum_distances(const Cuda& device, const Pairs<S>& p, i64 rows,
                   const BiasGradient<Accumulator<S>>& dbias, const Run& run) {
  using T = Accumulator<S>;
  if (dbias.distances.data == nullptr) return run(DistanceSums<T>{});
  DistanceSums<T> distances{{}, rows, p.lists.any() ? Staircase{} : p.of_class(0).band.first};
  const i64 heads = p.B() * p.H(), tiles = (p.N() + rows - 1) / rows;
  i64 keys = 0;  // of the longest block, in whole tiles
  for (i64 tile = 0; tile < tiles; ++tile) {
    const i64 last = std::min(p.N(), (tile + 1) * rows) - 1;
    const i64 end = p.lists.any() ? p.S() : std::min(p.S(), p.band.end.at(last));
    const i64 begin = distances.begin.at(tile * rows) / 8 * 8;
    keys = std::max(keys, (end - begin + tile_columns - 1) / tile_columns * tile_columns);
  }
  const i64 span = keys + rows - 1;
  const Workspace<T> sums(device, heads * tiles * span);
  distances.sums = sums.view(heads, tiles, span);
  const auto bytes = static_cast<std::size_t>(heads * tiles * span) * sizeof(T);
  check_cuda(cudaMemsetAsync(sums.data(), 0, bytes, stream_of(device)), "pairs");
  run(distances);
  for_rows("pairs", device, heads, dbias.distances.size(2), AddDistances<T>{distances, dbias});
}

}  // namespace weft
