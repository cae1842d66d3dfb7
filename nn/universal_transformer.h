// The universal transformer as a character model: one block, applied again and again.
// M. Dehghani et al., "Universal transformers", ICLR 2019, arXiv 1807.03819, in the form of the
// models of M. Spellings, "Agglomerative attention", arXiv 1907.06607, table 1.
//
//     h = E[ids]
//     for t = 0 … L−1:   position:  h ← h + pos[0 … N−1] + depth[t]
//                        conv:      h ← conv(h)             (causal, ReLU)
//                        rotary:    h unchanged; the attention rotates q and k (ops/rotary)
//                        none:      h unchanged
//                        h ← block(h)
//     a = Σ_t weight_t h_t by adaptive computation time (ops/adaptive_computation), or the last h
//     logits = drop(a W_o) Eᵀ,  with the wiring prenorm drop(LN(a) W_o) Eᵀ
//     penalty = ponder + λ (ΣE² + ΣW_o²) + the penalties of the attention layers
//
// The convolution, the positions and the halting map are the same at every step, and so is the
// block unless `shared` is off. E is both the embedding and the output map.
//
// With a memory of M positions a text is read in segments: at every step of depth the attention
// also sees its last M inputs of the segments before, and the convolution its last W, without
// gradients (Z. Dai et al., "Transformer-XL: attentive language models beyond a fixed-length
// context", ACL 2019, arXiv 1901.02860, section 3.2). Before the first segment they are zeros, as
// in the authors' code for TensorFlow.
#pragma once

#include <optional>

#include "nn/transformer.h"
#include "ops/adaptive_computation/adaptive_computation.h"

namespace weft {

struct UniversalTransformerConfig {
  i64 vocabulary = 28;                // V
  i64 width = 64;                     // d
  i64 depth = 5;                      // L
  i64 heads = 8;                      // or classes
  i64 length = 128;                   // N: positions, and keys that decoding keeps
  std::string attention = "full";     // a specification: name:option=value,…
  std::string encoding = "position";  // "conv", "rotary" or "none"
  i64 conv_width = 8;                 // W
  double attention_dropout = 0.1, residual_dropout = 0.1, output_dropout = 0.6;
  bool act = true;
  double l2 = 1e-6;                  // λ
  std::string wiring = "universal";  // "vanilla" or "prenorm" (nn/transformer.h)
  bool shared = true;                // one block for all steps
  i64 hidden = 0;                    // of the feed-forward layer; 0: four times the width
  i64 memory = 0;                    // M: positions of earlier segments that attention sees
  std::string precision = "f32";     // of activations; or "bf16" (nn/precision.h)
};

// Throws if a memory is impossible: positions are numbered, or the mechanism takes no keys before
// its queries.
void check_memory(const UniversalTransformerConfig& config);

class UniversalTransformer {
 public:
  // Throws if a setting is out of range. Parameters are drawn from `seed` by their names.
  UniversalTransformer(const UniversalTransformerConfig& config, std::uint64_t seed,
                       DType dtype = DType::f32);

  // The memory of B texts after earlier segments; the next segment reads it and replaces it.
  struct Memory {
    struct Step {
      Tensor attention;  // [B, M, d]: its last inputs
      nn::CausalConv::State convolution;
    };
    std::vector<Step> steps;  // of depth
  };
  Memory start_of(i64 texts) const;  // of zeros

  struct Output {
    Variable logits;   // [B, N, V]
    Variable penalty;  // []
  };
  // ids [B, N] i64, in 0 … V−1. Position models take at most `length` of them.
  // `memory`, if any, has as many texts as ids has rows.
  Output operator()(Context& context, const Tensor& ids, Memory* memory = nullptr) const;

  struct Loss {
    Variable cross_entropy, penalty;  // [] each; their sum is what training minimises
  };
  // Against targets [B, N] i64; the logits are never stored all at once.
  Loss loss(Context& context, const Tensor& ids, const Tensor& targets,
            Memory* memory = nullptr) const;

  struct Score {
    Tensor nats;     // [B, N] f64: the loss of every target
    Tensor penalty;  // []
  };
  // The same without dropout and tape.
  Score score(const Tensor& ids, const Tensor& targets, Memory* memory = nullptr) const;

  // Decoding: the state of the past, for each step of depth. It begins with no past at all, where
  // the first segment of a model with a memory sees M zeros.
  struct State {
    struct Step {
      nn::TransformerBlock::State block;
      nn::CausalConv::State convolution;
    };
    std::vector<Step> steps;
    i64 position = 0;  // characters seen
  };
  State start() const;
  // The logits [V] of the character after the last of `ids`, which follow what was read so far. A
  // position model throws beyond `length` characters: start again from a later one. `full` drops
  // keys that are more than `length` back, or, with a memory, `length` plus the memory.
  Tensor step(State& state, std::span<const i64> ids) const;
  Tensor step(State& state, i64 id) const { return step(state, {&id, 1}); }

  Device device() const { return embedding_.table.value().device(); }
  const UniversalTransformerConfig& config() const { return config_; }
  // Whether there are `length` positions and no more: they are numbered, or attention learns by
  // position.
  bool has_last_position() const { return numbered() || learns_by_position_; }

  void each(const auto& visit) {
    visit("embedding", embedding_);
    visit("position", position_), visit("depth", depth_), visit("convolution", convolution_);
    if (config_.shared) {
      visit("block", blocks_[0]);
    } else {
      visit("blocks", blocks_);
    }
    visit("halting", halting_), visit("norm", norm_), visit("output", output_);
  }

 private:
  const nn::TransformerBlock& block(i64 step) const;
  bool numbered() const { return config_.encoding == "position"; }
  Variable encoded(const Variable& h, i64 step, i64 position) const;
  Variable encoded_behind(nn::CausalConv::State& before, const Variable& h, i64 step,
                          i64 position) const;
  Variable outward(const Variable& accumulated) const;
  Accumulated combined(std::span<const Variable> states) const;
  struct Hidden {
    Variable states;  // [B, N, d], whose products with E are the logits
    Variable penalty;
  };
  Hidden hidden(Context& context, const Tensor& ids, Memory* memory) const;
  Variable logits_of(const Variable& states) const;

  UniversalTransformerConfig config_;
  bool learns_by_position_;
  nn::Embedding embedding_;     // E [V, d]
  Parameter position_, depth_;  // [N, d], [L, d], or none
  std::optional<nn::CausalConv> convolution_;
  std::vector<nn::TransformerBlock> blocks_;  // one, or one for each step
  std::optional<nn::Linear> halting_;         // [d, 1]
  std::optional<nn::LayerNorm> norm_;         // of the last block's output, with prenorm
  nn::Linear output_;                         // W_o [d, d]
};

}  // namespace weft
