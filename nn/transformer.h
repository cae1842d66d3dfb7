// A transformer block: attention, then the feed-forward layer, each followed by layer normalisation
// of its sum with what went in.
//
//     universal:  y = LN₁(drop(x + attention(x))),   out = LN₂(drop(y + feed_forward(y)))
//     vanilla:    y = LN₁(x + drop(attention(x))),   out = LN₂(y + drop(feed_forward(y)))
//
// Vanilla is A. Vaswani et al., arXiv 1706.03762, section 5.4; universal is the wiring of the
// keras-transformer library, and so of the agglomerative-attention models (arXiv 1907.06607).
#pragma once

#include "nn/attention.h"

namespace weft::nn {

struct BlockOptions {
  AttentionOptions attention;
  std::int64_t hidden = 0;  // of the feed-forward layer; 0: four times the width
  Activation activation = Activation::gelu;
  Wiring wiring = Wiring::universal;
  double dropout = 0;  // at both sums
};

struct TransformerBlock {
  BlockOptions options;
  Attention attention;
  LayerNorm norm1;
  FeedForward feed_forward;
  LayerNorm norm2;

  explicit TransformerBlock(const BlockOptions& options, DType dtype = DType::f32);
  Variable operator()(Context& context, const Variable& x, const Lengths& lengths = {}) const;

  using State = Attention::State;
  State start(std::int64_t capacity, std::int64_t batch = 1) const {
    return attention.start(capacity, batch);
  }
  Variable step(State& state, const Variable& x) const;  // x [B, 1, d] → [B, 1, d]

  void each(const auto& visit) {
    visit("attention", attention), visit("norm1", norm1);
    visit("feed_forward", feed_forward), visit("norm2", norm2);
  }
};

// A stack of blocks, each with weights of its own.
struct Transformer {
  std::vector<TransformerBlock> blocks;

  Transformer(const BlockOptions& options, std::int64_t layers, DType dtype = DType::f32);
  Variable operator()(Context& context, const Variable& x, const Lengths& lengths = {}) const;

  using State = std::vector<TransformerBlock::State>;
  State start(std::int64_t capacity, std::int64_t batch = 1) const;
  Variable step(State& state, const Variable& x) const;  // x [B, 1, d] → [B, 1, d]

  void each(const auto& visit) { visit("blocks", blocks); }
};

}  // namespace weft::nn
