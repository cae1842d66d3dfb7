// Attention by features, differentiable: the op on the engine of scan.h, and its decoding.
#pragma once

#include <memory>

#include "ops/attention/engines/scan/scan.h"
#include "ops/attention/mechanism.h"

namespace weft {

struct ScanCall {
  const char* name = "scan";  // of the mechanism, in messages
  Feature feature = Feature::elu;
  double added = 0, least = 0;  // the divisor is max(Σ weights + added, least)
  i64 period = 0;               // of Feature::cosine; 0: the longer of an item's own lengths
  bool causal = false;
  Tensor lengths = {}, query_lengths = {};
  i64 offset = 0;
  // Of random features: Ω [R, E], √τ and w.
  Tensor omega = {};
  double scale = 1, constant = 0;
  // With levels (scan.h): what is subtracted, handed in or found by forward.
  Tensor query_max = {}, key_max = {};
  bool find_query_max = false, find_key_max = false;
};

// Room for the maxima that are not handed in, where there are levels: forward finds them. Calls below
// do so by themselves; who wants to see them calls it before.
void make_maxima(ScanCall& call, const Tensor& q);

// out [B, N, H, M] of q [B, N, H, E], k [B, S, H, E] and v [B, S, H, M].
Variable scan_attention(const ScanCall& call, const Variable& q, const Variable& k,
                        const Variable& v);

// Decoding with the sums in f64, 8 B H F (M + 1) bytes at any length, with levels 8 B H (M + 2) more.
// Of random features a step takes Ω behind q, k and v; R is the number of its rows.
std::unique_ptr<DecodingState> decode_by_scan(const ScanCall& call, const AttentionSizes& sizes,
                                              i64 R = 0);

// What a fact sheet says.
AttentionCost scan_cost(Feature feature, const AttentionSizes& sizes, bool causal, DType type,
                        i64 R = 0);

}  // namespace weft
