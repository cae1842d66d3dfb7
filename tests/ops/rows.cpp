// The ops over rows with empty rows, all types, and rates of 0.
#include "ops/adaptive_computation/adaptive_computation.h"
#include "ops/conv1d/conv1d.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/feed_forward/feed_forward.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"
#include "tests/halves.h"

namespace weft {
namespace {

Tensor normal(const Shape& shape) { return random_normal(shape, DType::f64, 1); }

using Function = Variable (*)(std::span<const Variable>);

Variable of_linear(std::span<const Variable> in) { return linear(in[0], in[1], in[2]); }
Variable of_layer_norm(std::span<const Variable> in) { return layer_norm(in[0], in[1], in[2]); }
Variable of_feed_forward(std::span<const Variable> in) {
  return feed_forward(in[0], in[1], in[2], in[3], in[4], Activation::gelu);
}

TEST_SUITE("ops") {

TEST_CASE("rows: widths of nothing") {
  const struct {
    Function function;
    std::vector<Tensor> inputs;
  } cases[] = {
      {of_linear, {normal({2, 0}), normal({0, 3}), normal({3})}},
      {of_linear, {normal({2, 3}), normal({3, 0}), normal({0})}},
      {of_linear, {normal({0, 3}), normal({3, 4}), normal({4})}},
      {of_layer_norm, {normal({2, 0}), normal({0}), normal({0})}},
      {of_layer_norm, {normal({0, 3}), normal({3}), normal({3})}},
      {of_feed_forward, {normal({2, 0}), normal({0, 3}), normal({3}), normal({3, 2}), normal({2})}},
      {of_feed_forward, {normal({2, 3}), normal({3, 0}), normal({0}), normal({0, 2}), normal({2})}},
  };
  for (const auto& c : cases) {
    const auto f = [&](std::span<const Variable> in) { return std::vector{c.function(in)}; };
    const Run result = run(f, c.inputs);
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      CHECK(result.gradients[i].shape() == c.inputs[i].shape());
    }
  }
  // A product with inner size 0 is zero: the bias remains.
  const Tensor bias = normal({3});
  const Tensor y = linear(normal({2, 0}), normal({0, 3}), bias).value();
  CHECK(same_bits(y, bias.expand({2, 3}).clone()));
  CHECK(cross_entropy_rows(normal({0, 0}), Tensor::zeros({0}, DType::i64)).count() == 0);
}

TEST_CASE("rows: a residual norm drops halves of a batch by their place in it") {
  for (const DropoutOn on : {DropoutOn::sum, DropoutOn::branch}) {
    const auto part = [&](std::span<const Variable> in, i64 first, i64 end) {
      Residual options{.dropout_on = on, .dropout = 0.4, .random = {1, 2, 3}};
      options.random.first_example = first;
      return residual_layer_norm(slice(in[0], 0, first, end), slice(in[1], 0, first, end), in[2],
                                 in[3], options);
    };
    for (const i64 d : {5, 24, 300}) {
      check_halves(part,
                   {normal({4, 3, d}), random_normal({4, 3, d}, DType::f64, 2), normal({d}),
                    random_normal({d}, DType::f64, 3)},
                   4);
    }
  }
}

TEST_CASE("rows: errors name the op, and the type that does not fit") {
  const Tensor whole = Tensor::zeros({2, 3}, DType::i64), none = Tensor::zeros({3}, DType::i64);
  const Tensor matrix = Tensor::zeros({3, 3}, DType::i64);
  CHECK_ERROR(linear(whole, matrix, Variable()),
              "linear: wanted f32, f64 or bf16 elements, got i64");
  CHECK_ERROR(layer_norm(whole, none, none),
              "layer_norm: wanted f32, f64 or bf16 elements, got i64");
  CHECK_ERROR(feed_forward(whole, matrix, none, matrix, none, Activation::relu),
              "feed_forward: wanted f32, f64 or bf16 elements, got i64");
  CHECK_ERROR(causal_conv1d(Tensor::zeros({1, 2, 3}, DType::i64),
                            Tensor::zeros({2, 3, 3}, DType::i64), none),
              "causal_conv1d: wanted f32, f64 or bf16 elements, got i64");
  CHECK_ERROR(linear(normal({2, 3}), normal({3, 4}), Tensor::zeros({4}, DType::f32)),
              "linear: the weight [3,4] needs a bias [4] of f64, got [4] of f32");
}

TEST_CASE("rows: a rate of dropout that keeps nothing, and one without a branch") {
  const Tensor x = normal({2, 3}), gain = normal({3});
  const Residual all{.dropout = 0.9999999};
  CHECK_ERROR(residual_layer_norm(x, x, gain, gain, all), "layer_norm: the dropout rate must be");
  CHECK_ERROR(
      apply(LayerNorm{.dropout = 0.5}, Variable(x), Variable(), Variable(gain), Variable(gain)),
      "dropout needs a branch");
  CHECK_ERROR(layer_norm(x, gain, gain, -1), "layer_norm: epsilon is 0 or more, got -1");
}

TEST_CASE("rows: adaptive computation without tokens, or with another bias") {
  const auto act = [](const Shape& state, const Tensor& bias) {
    const std::vector<Variable> states{normal(state)};
    return adaptive_computation(states, normal({3, 1}), bias);
  };
  CHECK_ERROR(act({0, 3}, normal({1})), "there are no tokens in [0,3]");
  CHECK_ERROR(act({2, 3}, Tensor()), "a bias [1] of one type");
  CHECK_ERROR(act({2, 3}, Tensor::zeros({1}, DType::f32)), "got [3,1] f64 and [1] f32");
}

}  // TEST_SUITE("ops")

}  // namespace
}  // namespace weft
