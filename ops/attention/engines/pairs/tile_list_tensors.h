// Lists of tiles in tensors, and their construction: from a mask, from a block pattern.
#pragma once

#include "ops/attention/engines/pairs/block_lists.h"
#include "runtime/tensor.h"

namespace weft {

// The lists in memory of a device.
struct TileListTensors {
  Tensor starts, runs, column_starts, column_runs, masks;  // i32, i32 [n, 3], …, i64
  i64 items = 1, heads = 1, rows = 0, columns = 0;

  TileLists lists() const;
};

// The meaning of a mask's elements: each covers `block` queries and as many keys, fewer at the end.
struct MaskedPairs {
  i64 queries = 0, keys = 0, block = 1;
  bool causal = false;  // only the pairs with j <= i

  // A block may be of any size, so that a sum with it may not fit.
  i64 rows() const { return queries / block + (queries % block > 0 ? 1 : 0); }
  i64 columns() const { return keys / block + (keys % block > 0 ? 1 : 0); }
};

// The pairs where `mask` [rows, columns], [H, rows, columns] or [B, H, rows, columns] (u8) is not
// 0; axes B and H of size 1 are broadcast. Throws for another shape.
TileListTensors tiles_of_mask(const Tensor& mask, const MaskedPairs& pairs, Device device);

// The lists of a pattern in the memory of a device. Throws if their offsets do not fit in 32 bits.
TileListTensors tiles_of_blocks(const BlockPattern& pattern, Device device);

// The bytes of these lists.
double bytes_of_block_lists(const BlockPattern& pattern);

}  // namespace weft
