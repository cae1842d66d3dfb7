// Which block of a grid owns which tile of full attention. For .cu files.
#pragma once

#include "ops/attention/full/full.h"
#include "ops/attention/score_tile.cuh"

namespace weft {

// Rows `first` … of one batch item and head.
struct FullTile {
  std::int64_t b, h, first;
};

// Tiles of one head are neighbours in the grid, so that its keys and values are in cache; where
// later tiles see more keys (causal), these come first.
template <class T>
__device__ FullTile tile_of_block(const FullAttention<T>& p, std::int64_t length, int rows) {
  const std::int64_t tiles = (length + rows - 1) / rows;
  const std::int64_t head = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  return {head / p.H(), head % p.H(), (p.causal ? tiles - 1 - tile : tile) * rows};
}

// A block for each tile of each head in x, for each `columns` columns of `width` in y.
template <class T>
dim3 tile_grid(const FullAttention<T>& p, std::int64_t length, int rows, std::int64_t width,
               int columns) {
  return {static_cast<unsigned>(p.B() * p.H() * ((length + rows - 1) / rows)),
          static_cast<unsigned>((width + columns - 1) / columns)};
}

template <class T>
DropoutMask mask_of(const FullAttention<T>& p) {
  return DropoutMask(p.random, p.dropout, p.S());
}

// The row of the dropout mask that belongs to the first row of a tile of queries.
template <class T>
__device__ std::int64_t mask_row(const FullAttention<T>& p, const FullTile& at) {
  return (at.b * p.H() + at.h) * p.N() + at.first;
}

}  // namespace weft
