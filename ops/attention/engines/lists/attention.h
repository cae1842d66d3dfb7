// Attention over lists of edges, differentiable: the op on the engine of lists.h.
#pragma once

#include <memory>

#include "ops/attention/engines/lists/edge_list_tensors.h"
#include "ops/attention/mechanism.h"

namespace weft {

struct ListsCall {
  const char* name = "lists";  // the mechanism, in messages
  double temperature = 1;
  double dropout = 0;
  RandomKey random = {};
};

// out [B, N, H, M] of q [B, N, H, E], k [B, S, H, E], v [B, S, H, M] and the types' vectors [types,
// E], which may be undefined: then types are ignored. The caller has to keep the types in the lists
// below their number.
Variable lists_attention(const ListsCall& call, std::shared_ptr<const EdgeListTensors> lists,
                         const Variable& q, const Variable& k, const Variable& v,
                         const Variable& types = {});

// The fact sheet's cost for lists of these sizes, the same for all heads and items, with `types`
// vectors (0: none).
AttentionCost lists_cost(const AttentionSizes& sizes, const EdgeListSizes& lists, i64 types,
                         DType type);

}  // namespace weft
