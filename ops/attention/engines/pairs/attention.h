// Attention over pairs, differentiable: the op on the engine of pairs.h.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ops/attention/engines/pairs/band.h"
#include "ops/attention/engines/pairs/tile_list_tensors.h"
#include "ops/attention/mechanism.h"

namespace weft {

// Keys [B, S, H, E] and values [B, S, H, M]; `lengths` [B] i64, or undefined.
struct PairsSource {
  Variable k, v;
  Tensor lengths = {};
};

// The pairs of one part: those of a band, or of lists.
struct PairsPart {
  Band band = {};
  std::shared_ptr<const TileListTensors> lists = {};
  i64 classes = 1;
  i64 first_key = 0;       // in the whole sequence; the band excludes earlier ones
  std::size_t source = 0;  // of its keys
  bool biased = false;     // the bias applies here
};

// Common to all parts. A bias is [B|1, H|1, N, S] over the keys of the biased part; if `origin` is
// not negative, it is a table [H|1, D] by distance, whose element origin + j − i belongs to query i
// and key j. The table must cover all pairs that are seen, and its part has no classes.
struct PairsCall {
  const char* name = "pairs";  // the mechanism, in messages
  double temperature = 1;
  Tensor query_lengths = {};
  double dropout = 0;
  RandomKey random = {};
  i64 origin = -1;
};

// The first column of the dropout mask for a part, after `columns` columns of the parts before.
constexpr i64 next_mask_columns(i64 columns) {
  return (columns + tile_side - 1) / tile_side * tile_side;
}

// out [B, N, H, M] of q [B, N, H, E]. A part has a column of the dropout mask for every key; one
// with classes has those of its longest class. Throws if a table by distance is too short for a
// pair, and if two bands show a pair twice; the caller has to keep lists disjoint.
Variable pairs_attention(const PairsCall& call, const Variable& q,
                         std::span<const PairsSource> sources, std::span<const PairsPart> parts,
                         const Variable& bias = {});
// Attention with one part.
Variable pairs_attention(const PairsCall& call, const Variable& q, const PairsSource& source,
                         const PairsPart& part, const Variable& bias = {});

// The number of pairs of N queries and of `keys` keys that the band of a part shows.
double pairs_of(const PairsPart& part, i64 N, i64 keys);

// The fact sheet's cost of one part in place with this number of pairs: operations, and the memory
// of one thread.
AttentionCost pairs_cost(const AttentionSizes& sizes, double pairs, DType type);

}  // namespace weft
