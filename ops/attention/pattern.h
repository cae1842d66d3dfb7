// Full attention with a user-defined pattern: a mask says which keys each query sees.
//
//     Tensor mask = …;                                    // [N / 64, N / 64]
//     Variable out = pattern_attention(mask, q, k, v, {.block = 64});
//
// The engine for pairs visits the 64 × 64 tiles in which the mask shows a pair, and no others
// (ops/attention/engines/pairs/pairs.h): time is proportional to their number, and no score of a
// hidden tile is computed. A partial tile takes 1 KB; tiles with equal bits share it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/attention/engines/pairs/tile_list_tensors.h"
#include "ops/attention/mechanism.h"

namespace weft {

// A mask prepared for N queries and S keys, for any number of calls, from any thread: it caches its
// lists of tiles on each device that asked for them. A training step that is captured as a CUDA
// graph needs one that lives as long as the graph.
class AttentionPattern {
 public:
  // mask [N, S], [H, N, S] or [B, H, N, S] of any type: a query sees a key if it is not 0. If
  // `block` is more than 1, an element covers block × block pairs, and the axes are ⌈N/block⌉ and
  // ⌈S/block⌉ long. B and H may be 1: the same for all. Throws for another shape, and for block <
  // 1.
  AttentionPattern(const Tensor& mask, i64 queries, i64 keys, i64 block = 1);

  // Throws, in the name of the mechanism, if the call has other sizes.
  void check(const std::string& mechanism, const AttentionSizes& sizes) const;
  std::shared_ptr<const TileListTensors> lists(Device device, bool causal) const;
  // `seen` [B, 1, N, S] in f64, restricted to the pairs that the mask shows: [B, H, N, S].
  Tensor of(const Tensor& seen, i64 heads) const;

 private:
  struct Kept {
    Device device;
    bool causal;
    std::shared_ptr<const TileListTensors> lists;
  };

  Tensor mask_;  // [B|1, H|1, rows, columns] of u8, on the CPU
  MaskedPairs pairs_;
  mutable std::mutex kept_mutex_;
  mutable std::vector<Kept> kept_;
};

struct PatternOptions {
  i64 block = 1;            // of a mask that is a tensor
  double temperature = 0;   // τ; 0: 1/√E
  AttentionCall call = {};  // its other masks hide more pairs; dropout, random key
};

// out [B, N, H, M] of q [B, N, H, E], k [B, S, H, E] and v [B, S, H, M], differentiable: softmax
// attention over the pairs that the mask shows. A query that sees nothing gives 0.
Variable pattern_attention(const Tensor& mask, const Variable& q, const Variable& k,
                           const Variable& v, const PatternOptions& options = {});
// The same with a prepared pattern.
Variable pattern_attention(const std::shared_ptr<const AttentionPattern>& pattern,
                           const Variable& q, const Variable& k, const Variable& v,
                           const PatternOptions& options = {});

}  // namespace weft
