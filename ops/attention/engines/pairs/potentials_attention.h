// Attention whose weights are normalised along rows and columns in turn, differentiable: the op on
// the passes of potentials.h.
#pragma once

#include "ops/attention/mechanism.h"

namespace weft {

struct PotentialsCall {
  const char* name = "potentials";  // the mechanism, in messages
  double temperature = 1;
  i64 iterations = 3;   // half steps: odd ones normalise rows, even ones columns
  bool detach = false;  // the columns' potentials are constants in backward
  Tensor lengths = {}, query_lengths = {};  // [B] i64, or undefined
  double dropout = 0;
  RandomKey random = {};
};

// out [B, N, H, M] of q [B, N, H, E], k [B, S, H, E] and v [B, S, H, M].
Variable potentials_attention(const PotentialsCall& call, const Variable& q, const Variable& k,
                              const Variable& v);

// The same in plain ops, on the CPU.
Variable potentials_definition(const PotentialsCall& call, const Variable& q, const Variable& k,
                               const Variable& v);
using PotentialsFunction = decltype(&potentials_attention);

// The fact sheet's cost: operations, and the memory of one thread.
AttentionCost potentials_cost(const AttentionSizes& sizes, i64 iterations, bool detach, DType type);

}  // namespace weft
