// A classifier of sequences of symbols, around any attention mechanism that is not causal: the
// model of Long Range Arena (Y. Tay et al., ICLR 2021, arXiv 2011.04006, appendix A) in the small
// form of Y. Xiong et al., "Nyströmformer", AAAI 2021, arXiv 2102.03902, section 5.3: two layers of
// width 64, and classes read off the mean over the positions.
//
//     h = drop(symbols[x_n] + positions[n])                            n = 0 … length − 1
//     L times, the wiring prenorm of transformer.h
//     y = mean over the positions that exist of LN(h)
//     logits = y W_c + b_c
//
//     x [B, N] i64, N ≤ length   lengths [B]   h [B, N, d]   y [B, d]   logits [B, classes]
//
// With together = 2 an example is two sequences, rows 2b and 2b + 1 of x, through the same layers:
//
//     logits_b = [y_2b, y_{2b+1}, y_2b ⊙ y_{2b+1}, y_2b − y_{2b+1}] W_c + b_c      [B / 2, classes]
//
// Symbols and positions start as N(0, 0.02²).
#pragma once

#include "nn/transformer.h"

namespace weft {

struct SequenceClassifierConfig {
  i64 symbols = 16;  // including the padding symbol
  i64 classes = 10;
  i64 length = 2000;  // the most positions
  i64 together = 1;   // sequences of an example: 1 or 2
  i64 width = 64;     // d
  i64 layers = 2;     // L
  i64 heads = 2;
  i64 hidden = 128;                // of the feed-forward layer
  std::string attention = "full";  // a specification: name:option=value,…
  double attention_dropout = 0.1, dropout = 0.1;
  std::string precision = "f32";  // of activations; or "bf16" (nn/precision.h)
};

class SequenceClassifier {
 public:
  // Throws if a setting is out of range. Parameters are drawn from `seed` by their names.
  SequenceClassifier(const SequenceClassifierConfig& config, std::uint64_t seed,
                     DType dtype = DType::f32);

  // A sequence of length 0 has y = 0: with together = 1 its logits are the bias alone.
  Variable operator()(Context& context, const Tensor& symbols, const Tensor& lengths) const;

  Device device() const { return positions_.value().device(); }
  const SequenceClassifierConfig& config() const { return config_; }

  void each(const auto& visit) {
    visit("symbols", symbols_), visit("positions", positions_);
    visit("transformer", transformer_), visit("norm", norm_), visit("head", head_);
  }

 private:
  SequenceClassifierConfig config_;
  nn::Embedding symbols_;
  Parameter positions_;  // [length, d]
  nn::Transformer transformer_;
  nn::LayerNorm norm_;
  nn::Linear head_;
};

}  // namespace weft
