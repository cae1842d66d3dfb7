// The vision transformer for small pictures, around any attention mechanism.
// A. Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021, arXiv 2010.11929, eq. 1 to 4,
// in the form of S. Yuan, H. Xu, "Towards better multi-head attention via channel-wise sample
// permutation", 2024, arXiv 2410.10914, Tables 1 and 3: classes are read off the mean over the
// tokens.
//
// A picture of S × S pixels and c channels is split into N = (S/p)² patches, row by row; the
// features of a patch are its p × p pixels, row by row, each with its channels.
//
//     h = drop(patches W_p + b_p + pos[0 … N − 1])
//     L times:   h ← h + drop(attention(LN₁(h)))
//                h ← h + drop(drop(φ(LN₂(h) W₁ + b₁)) W₂ + b₂)
//     logits = LN(mean over the tokens of h) W_c + b_c
//
//     images [B, S, S, c]   patches [B, N, p² c]   h [B, N, d]   logits [B, classes]
//
// φ(z) = z Φ(z) is the exact GELU. An attention that has norm and residual of its own is used
// without those, h ← attention(h), and φ after it is SiLU. Attention has a bias at its output
// alone; its own dropout is the mechanism's (on the map of `full`). The positions have N + 1 rows,
// of which the last is unused with the mean, and so is the class token: the paper counts both.
//
// Weights and biases of linear maps are initialised as in PyTorch, U(±1/√fan in), positions and
// class token with N(0, 1).
#pragma once

#include "nn/attention.h"

namespace weft {

struct VisionTransformerConfig {
  i64 size = 32;     // S: pixels of a side
  i64 channels = 3;  // c
  i64 patch = 4;     // p: pixels of a patch's side, a divisor of S
  i64 classes = 10;
  i64 width = 512;  // d
  i64 layers = 6;   // L
  i64 heads = 8;
  i64 hidden = 512;                // of the feed-forward layer
  i64 value_width = 0;             // of all heads together; 0: the width
  std::string attention = "full";  // a specification: name:option=value,…
  double attention_dropout = 0.1, dropout = 0.1;

  i64 tokens() const { return (size / patch) * (size / patch); }  // N
  std::string precision = "f32";  // of activations; or "bf16" (nn/precision.h)
};

namespace nn {

// One of the L layers.
struct VisionBlock {
  Dropout dropout;
  std::optional<LayerNorm> norm1;  // none with an attention that has its own residual
  LayerNorm norm2;
  Attention attention;
  Linear up, down;  // W₁, b₁ and W₂, b₂

  explicit VisionBlock(const VisionTransformerConfig& config, DType dtype = DType::f32);
  Variable operator()(Context& context, const Variable& x) const;  // [B, N, d] → [B, N, d]

  void each(const auto& visit) {
    visit("norm1", norm1), visit("attention", attention);
    visit("norm2", norm2), visit("up", up), visit("down", down);
  }
};

}  // namespace nn

class VisionTransformer {
 public:
  // Throws if a setting is out of range. Parameters are drawn from `seed` by their names.
  VisionTransformer(const VisionTransformerConfig& config, std::uint64_t seed,
                    DType dtype = DType::f32);

  // The logits [B, classes] of images [B, S, S, c]. If `states` is set, it receives the output
  // tokens [B, N, d] of each layer.
  Variable operator()(Context& context, const Tensor& images,
                      std::vector<Tensor>* states = nullptr) const;

  Device device() const { return position_.value().device(); }
  const VisionTransformerConfig& config() const { return config_; }

  void each(const auto& visit) {
    visit("patch", patch_), visit("position", position_), visit("class_token", class_token_);
    visit("blocks", blocks_), visit("norm", norm_), visit("head", head_);
  }

 private:
  VisionTransformerConfig config_;
  nn::Linear patch_;
  Parameter position_, class_token_;  // [N + 1, d], [d]
  std::vector<nn::VisionBlock> blocks_;
  nn::LayerNorm norm_;
  nn::Linear head_;
};

// Patches [B, N, p² c] of images [B, S, S, c].
Tensor patches_of(const Tensor& images, i64 patch);

}  // namespace weft
