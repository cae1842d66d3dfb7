// Clustered attention between centroids and keys, as a call of the engine for pairs.
#pragma once

#include "ops/attention/clustered/clustered.h"
#include "ops/attention/engines/pairs/pairs.h"

namespace weft {

// The centroids [B, C, H, E] are the queries.
template <class T>
Pairs<T> over_centroids(const ClusteredAttention<T>& p, View<const T, 4> centroids) {
  return {.q = centroids,
          .k = p.k,
          .v = p.v,
          .bias = {},
          .lengths = p.lengths,
          .temperature = p.temperature,
          .dropout = p.dropout,
          .random = p.random,
          .columns = p.S()};
}

}  // namespace weft
