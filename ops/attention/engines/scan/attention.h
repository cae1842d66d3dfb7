// Attention by features, differentiable: the op on the engine of scan.h, and its decoding.
#pragma once

#include <memory>

#include "ops/attention/engines/scan/scan.h"
#include "ops/attention/mechanism.h"

namespace weft {

struct ScanCall {
  const char* name = "scan";  // the mechanism, in messages
  Feature feature = Feature::elu;
  double added = 0, least = 0;  // the divisor is max(Σ weights + added, least)
  i64 period = 0;               // for Feature::cosine; 0: the longer of an item's lengths
  bool causal = false;
  Tensor lengths = {}, query_lengths = {};
  i64 offset = 0;
  // For random features: Ω [R, E], √τ and w.
  Tensor omega = {};
  double scale = 1, constant = 0;
  // With levels (scan.h): the subtracted maxima, given by the caller or computed by forward.
  Tensor query_max = {}, key_max = {};
  bool find_query_max = false, find_key_max = false;
};

// Allocates the maxima that are not given, if there are levels: forward computes them. The calls
// below do so by themselves; call it before to read the maxima afterwards.
void make_maxima(ScanCall& call, const Tensor& q);

// out [B, N, H, M] of q [B, N, H, E], k [B, S, H, E] and v [B, S, H, M].
Variable scan_attention(const ScanCall& call, const Variable& q, const Variable& k,
                        const Variable& v);

// Decoding with the sums in f64, 8 B H F (M + 1) bytes at any length, with levels 8 B H (M + 2)
// more. With random features a step takes Ω after q, k and v; R is the number of its rows.
std::unique_ptr<DecodingState> decode_by_scan(const ScanCall& call, const AttentionSizes& sizes,
                                              i64 R = 0);

// The fact sheet's cost.
AttentionCost scan_cost(Feature feature, const AttentionSizes& sizes, bool causal, DType type,
                        i64 R = 0);

}  // namespace weft
