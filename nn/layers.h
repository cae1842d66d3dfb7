// Layers of one op each: the op's options and its parameters.
//
// They are in weft::nn, since the op of a layer often has the same name in weft. Parameters hold
// NaN until initialize() draws them; the default initializers are Keras's.
#pragma once

#include "nn/context.h"
#include "nn/module.h"
#include "ops/feed_forward/feed_forward.h"
#include "ops/layer_norm/layer_norm.h"

namespace weft::nn {

// x [.., in] → x W + b [.., out]
struct Linear {
  Parameter weight, bias;  // [in, out], [out] or none

  Linear(i64 in, i64 out, bool biased = true, DType dtype = DType::f32);
  Variable operator()(const Variable& x) const;
  void each(const auto& visit) { visit("weight", weight), visit("bias", bias); }
};

// ids [..] i64 → rows of the table [.., width]
struct Embedding {
  Parameter table;  // [entries, width], U(±0.05)

  Embedding(i64 entries, i64 width, DType dtype = DType::f32);
  Variable operator()(const Tensor& ids) const;
  void each(const auto& visit) { visit("table", table); }
};

// x [.., width] → the same shape; of x alone, or of its sum with a branch (ops/layer_norm).
struct LayerNorm {
  Parameter gain, bias;  // [width] each, 1 and 0

  explicit LayerNorm(i64 width, DType dtype = DType::f32);
  Variable operator()(const Variable& x) const;
  Variable operator()(const Variable& x, const Variable& branch, const Residual& options) const;
  void each(const auto& visit) { visit("gain", gain), visit("bias", bias); }
};

// In training, elements are 0 with probability `rate`, and the others are scaled by 1 / (1 − rate).
struct Dropout {
  double rate = 0;

  Variable operator()(Context& context, const Variable& x) const;
  void each(const auto&) {}
};

// x [.., width] → φ(x W₁ + b₁) W₂ + b₂ [.., width]
struct FeedForward {
  Activation activation;
  Parameter weight1, bias1, weight2, bias2;  // [width, hidden], [hidden], [hidden, width], [width]

  FeedForward(i64 width, i64 hidden, Activation activation = Activation::gelu,
              DType dtype = DType::f32);
  Variable operator()(const Variable& x) const;
  void each(const auto& visit) {
    visit("weight1", weight1), visit("bias1", bias1);
    visit("weight2", weight2), visit("bias2", bias2);
  }
};

// x [B, N, in] → [B, N, out]: position t sees t − W + 1 … t; positions before the start are zero.
struct CausalConv {
  Activation activation;
  Parameter weight, bias;  // [W, in, out] he_uniform, [out]

  CausalConv(i64 window, i64 in, i64 out, Activation activation = Activation::relu,
             DType dtype = DType::f32);
  Variable operator()(const Variable& x) const;

  // Decoding keeps the inputs of the last W positions, oldest first, initially zeros. They get no
  // gradient.
  struct State {
    Tensor window;  // [B, W, in]
  };
  State start(i64 batch = 1) const;
  Variable step(State& state, const Variable& x) const;  // x [B, n, in] → [B, n, out]

  void each(const auto& visit) { visit("weight", weight), visit("bias", bias); }
};

}  // namespace weft::nn
