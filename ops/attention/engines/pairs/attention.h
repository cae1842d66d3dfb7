// Attention over pairs, differentiable: the op on the engine of pairs.h.
#pragma once

#include <span>
#include <vector>

#include "ops/attention/engines/pairs/band.h"
#include "ops/attention/engines/pairs/tile_lists.h"
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
  std::size_t source = 0;  // whose keys
  bool biased = false;     // the bias counts here
};

// What the parts have in common. A bias is [B|1, H|1, N, S] over the keys of the biased part.
struct PairsCall {
  const char* name = "pairs";  // of the mechanism, in messages
  double temperature = 1;
  Tensor query_lengths = {};
  double dropout = 0;
  RandomKey random = {};
};

// out [B, N, H, M] of q [B, N, H, E]. Columns of the dropout mask: those of the first part, rounded
// up to whole tiles, then those of the second, …; a part with classes has those of its longest class.
Variable pairs_attention(const PairsCall& call, const Variable& q,
                         std::span<const PairsSource> sources, std::span<const PairsPart> parts,
                         const Variable& bias = {});
// Of one part.
Variable pairs_attention(const PairsCall& call, const Variable& q, const PairsSource& source,
                         const PairsPart& part, const Variable& bias = {});

// The first column of a part in the dropout mask, and, for parts.size(), how many there are.
i64 first_column(std::span<const PairsSource> sources, std::span<const PairsPart> parts,
                 std::size_t part);

// Where the engine works in narrow heads, and what it takes beside inputs and outputs on one thread,
// for a band over all keys: what fact sheets say.
AttentionCost pairs_cost(const AttentionSizes& sizes, double pairs, DType type);

}  // namespace weft
