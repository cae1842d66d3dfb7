// A transformer block: attention, then the feed-forward layer, each with a residual sum, and a
// layer normalisation of the sum, or of the input.
//
//     universal:  y = LN₁(drop(x + attention(x))),   out = LN₂(drop(y + feed_forward(y)))
//     vanilla:    y = LN₁(x + drop(attention(x))),   out = LN₂(y + drop(feed_forward(y)))
//     prenorm:    y = x + drop(attention(LN₁(x))),   out = y + drop(feed_forward(LN₂(y)))
//
// An attention that has norm and residual of its own (mega) is used without those, in each wiring:
// y = attention(x).
//
// Vanilla is A. Vaswani et al., arXiv 1706.03762, section 5.4; universal is the wiring of the
// keras-transformer library, and so of the agglomerative-attention models (arXiv 1907.06607);
// prenorm is GPT-2's (R. Xiong et al., "On layer normalization in the transformer architecture",
// ICML 2020, arXiv 2002.04745, table 1). After the last of its blocks the model normalises once
// more.
#pragma once

#include "nn/attention.h"

namespace weft::nn {

enum class BlockWiring { universal, vanilla, prenorm };
// Throws if there is no wiring of this name.
BlockWiring block_wiring(const std::string& name);

// The activation of the feed-forward layer after a mechanism: SiLU if that has its own residual, as
// in MEGA's layer, which is the wiring prenorm; otherwise the usual one.
Activation activation_behind(const AttentionSpec& spec, Activation usual);

struct BlockOptions {
  AttentionOptions attention;
  i64 hidden = 0;  // of the feed-forward layer; 0: four times the width
  Activation activation = Activation::gelu;
  BlockWiring wiring = BlockWiring::universal;
  double dropout = 0;  // at both sums
};

struct TransformerBlock {
  BlockOptions options;
  Attention attention;
  std::optional<LayerNorm> norm1;  // none with an attention that has its own residual
  FeedForward feed_forward;
  LayerNorm norm2;

  explicit TransformerBlock(const BlockOptions& options, DType dtype = DType::f32);
  Variable operator()(Context& context, const Variable& x, const Lengths& lengths = {}) const;
  // x follows `memory` [B, M, d], earlier inputs of the attention, and sees it; the last M inputs
  // replace it. It gets no gradient. The mechanism must take keys before its queries.
  Variable following(Context& context, const Variable& x, Tensor& memory) const;

  using State = Attention::State;
  State start(i64 capacity, i64 batch = 1) const { return attention.start(capacity, batch); }
  Variable step(State& state, const Variable& x) const;  // x [B, n, d] → [B, n, d]

  void each(const auto& visit) {
    visit("attention", attention), visit("norm1", norm1);
    visit("feed_forward", feed_forward), visit("norm2", norm2);
  }

 private:
  // The block with attended(x) as the attention of x.
  template <class Attended>
  Variable around(Context& context, const Variable& x, const Attended& attended) const;
};

// A stack of blocks, each with its own weights.
struct Transformer {
  std::vector<TransformerBlock> blocks;

  Transformer(const BlockOptions& options, i64 layers, DType dtype = DType::f32);
  Variable operator()(Context& context, const Variable& x, const Lengths& lengths = {}) const;

  using State = std::vector<TransformerBlock::State>;
  State start(i64 capacity, i64 batch = 1) const;
  Variable step(State& state, const Variable& x) const;  // x [B, n, d] → [B, n, d]

  void each(const auto& visit) { visit("blocks", blocks); }
};

}  // namespace weft::nn
