// Attention by distance, differentiable: the op on the passes of distances.h.
#pragma once

#include "ops/attention/mechanism.h"

namespace weft {

struct DistanceCall {
  const char* name = "distances";  // the mechanism, in messages
  double temperature = 1;
  Tensor lengths = {};  // [B] i64 or undefined, of queries and keys; S = N then
  double dropout = 0;
  RandomKey random = {};
  i64 nearest = 0, ramp = 1;
  i64 most = 0;  // distances
};

// The terms by distance of scores and weights; each may be undefined.
struct ByDistance {
  Variable table = {};  // [most, E], or [H, most, E]
  Variable bias = {};   // [H, most]; only beside a table
  Variable spans = {};  // [H]
};

// out [B, N, H, M] of q [B, N, H, E], k [B, S, H, E] and v [B, S, H, M], S >= N.
Variable distance_attention(const DistanceCall& call, const Variable& q, const Variable& k,
                            const Variable& v, const ByDistance& by);

}  // namespace weft
