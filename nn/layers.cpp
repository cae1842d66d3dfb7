#include "nn/layers.h"

#include "ops/conv1d/conv1d.h"
#include "ops/dropout/dropout.h"
#include "ops/dropout/mask.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"

namespace weft::nn {
namespace {

constexpr Initializer zeros{Initializer::zeros};
constexpr Initializer ones{Initializer::constant, 1};
constexpr Initializer glorot{Initializer::glorot_uniform};

}  // namespace

Linear::Linear(i64 in, i64 out, bool biased, DType dtype) : weight({in, out}, glorot, dtype) {
  if (biased) bias = Parameter({out}, zeros, dtype);
}

Variable Linear::operator()(const Variable& x) const { return linear(x, weight, bias); }

Embedding::Embedding(i64 entries, i64 width, DType dtype)
    : table({entries, width}, {Initializer::uniform, 0.05}, dtype) {}

Variable Embedding::operator()(const Tensor& ids) const { return embedding(table, ids); }

LayerNorm::LayerNorm(i64 width, DType dtype)
    : gain({width}, ones, dtype), bias({width}, zeros, dtype) {}

Variable LayerNorm::operator()(const Variable& x) const { return layer_norm(x, gain, bias); }

Variable LayerNorm::operator()(const Variable& x, const Variable& branch,
                               const Residual& options) const {
  return residual_layer_norm(x, branch, gain, bias, options);
}

Variable Dropout::operator()(Context& context, const Variable& x) const {
  check_dropout_rate("dropout", rate);
  const RandomKey key = context.random.next();
  return context.rate(rate) > 0 ? dropout(x, rate, key) : x;
}

FeedForward::FeedForward(i64 width, i64 hidden, Activation activation, DType dtype)
    : activation(activation),
      weight1({width, hidden}, glorot, dtype),
      bias1({hidden}, zeros, dtype),
      weight2({hidden, width}, glorot, dtype),
      bias2({width}, zeros, dtype) {}

Variable FeedForward::operator()(const Variable& x) const {
  return feed_forward(x, weight1, bias1, weight2, bias2, activation);
}

CausalConv::CausalConv(i64 window, i64 in, i64 out, Activation activation, DType dtype)
    : activation(activation),
      weight({window, in, out}, {Initializer::he_uniform}, dtype),
      bias({out}, zeros, dtype) {}

Variable CausalConv::operator()(const Variable& x) const {
  return causal_conv1d(x, weight, bias, activation);
}

CausalConv::State CausalConv::start(i64 batch) const {
  const Tensor& w = weight.value();
  return {Tensor::zeros({batch, w.size(0), w.size(1)}, w.dtype(), w.device())};
}

// The new output is one product of the whole window: [B, 1, W·in] × [W·in, out].
Variable CausalConv::step(State& state, const Variable& x) const {
  const i64 n = x.size(1);
  const bool converted = x.value().dtype() != weight.value().dtype();
  if (n > 1 || converted || x.wants_gradient()) {
    const i64 window = weight.value().size(0);
    const Variable parts[] = {state.window.slice(1, 1, window), x};
    const Variable all = concatenate(parts, 1);  // [B, W − 1 + n, in]
    state.window = all.value().slice(1, n - 1, window - 1 + n).clone();
    return slice((*this)(all), 1, window - 1, window - 1 + n);
  }
  const Tensor& w = weight.value();
  const i64 batch = state.window.size(0), window = w.size(0);
  const Tensor next = Tensor::empty(state.window.shape(), w.dtype(), w.device());
  next.slice(1, 0, window - 1).copy_from(state.window.slice(1, 1, window));
  next.slice(1, window - 1, window).copy_from(x.value());
  state.window = next;
  const Variable y = linear(Variable(next.reshape({batch, 1, window * w.size(1)})),
                            reshape(weight, {window * w.size(1), w.size(2)}), bias);
  return activation == Activation::relu ? relu(y) : y;
}

}  // namespace weft::nn
