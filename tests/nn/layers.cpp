#include "nn/layers.h"

#include "autograd/tape.h"
#include "tests/nn/checks.h"

using namespace weft;

namespace {

// Gradients of module(x) by x and all parameters, from random parameters.
template <class Module>
void check_gradients(Module module, const Shape& input) {
  randomise(module, 5);
  check_gradients_of(
      module, [&](std::span<const Variable> v) { return std::vector<Variable>{module(v[0])}; },
      {random_normal(input, DType::f64, 8)});
}

}  // namespace

TEST_SUITE("nn") {

TEST_CASE("layers: gradients by inputs and parameters") {
  check_gradients(nn::Linear(5, 3, true, f64), {2, 7, 5});
  check_gradients(nn::Linear(5, 3, false, f64), {2, 1, 5});
  check_gradients(nn::LayerNorm(6, f64), {2, 3, 6});
  check_gradients(nn::FeedForward(3, 11, Activation::gelu, f64), {2, 5, 3});
  check_gradients(nn::FeedForward(3, 11, Activation::relu, f64), {2, 5, 3});
  check_gradients(nn::CausalConv(3, 4, 5, Activation::relu, f64), {2, 7, 4});
  check_gradients(nn::CausalConv(3, 4, 5, Activation::none, f64), {2, 1, 4});
}

TEST_CASE(
    "layers: the residual form of layer normalisation, dropout on the sum and on the branch") {
  for (const DropoutOn dropout_on : {DropoutOn::sum, DropoutOn::branch}) {
    nn::LayerNorm norm(6, DType::f64);
    randomise(norm, 5);
    const Residual options{.dropout_on = dropout_on, .dropout = 0.3, .random = {7, 1, 2}};
    check_gradients_of(
        norm,
        [&](std::span<const Variable> v) {
          return std::vector<Variable>{norm(v[0], v[1], options)};
        },
        {random_normal({2, 3, 6}, DType::f64, 1), random_normal({2, 3, 6}, DType::f64, 2)});
  }
}

TEST_CASE("embedding layer: rows of the table, and their gradient") {
  nn::Embedding layer(5, 3, DType::f64);
  randomise(layer, 2);
  const Tensor ids = Tensor::from(std::vector<i64>{4, 0, 4, 2}, {2, 2}).to(tested_device());
  const std::vector<double> rows = layer(ids).value().to_vector<double>();
  const std::vector<double> table = layer.table.value().to_vector<double>();
  const std::vector<std::size_t> expected{4, 0, 4, 2};
  for (std::size_t i = 0; i < 12; ++i) CHECK(rows[i] == table[3 * expected[i / 3] + i % 3]);
  check_gradients_of(
      layer, [&](std::span<const Variable>) { return std::vector<Variable>{layer(ids)}; }, {});
}

TEST_CASE("dropout layer: in training only, drawn by seed and step") {
  const nn::Dropout layer{0.5};
  const Variable x(random_normal({40, 25}, DType::f32, 3).to(tested_device()));
  const auto run = [&](bool training, std::uint64_t seed, std::uint32_t step) {
    Context context(training, seed, step);
    return layer(context, x).value();
  };
  CHECK(same_bits(run(false, 1, 1), x.value()));
  CHECK_FALSE(same_bits(run(true, 1, 1), x.value()));
  CHECK(same_bits(run(true, 1, 1), run(true, 1, 1)));
  CHECK_FALSE(same_bits(run(true, 1, 1), run(true, 2, 1)));
  CHECK_FALSE(same_bits(run(true, 1, 1), run(true, 1, 2)));
  Context context(true, 1, 1);
  CHECK_ERROR(nn::Dropout{-0.5}(context, x), "the dropout rate must be in [0, 1)");
}

TEST_CASE("causal convolution: steps give the whole sequence, past the window") {
  for (const Activation activation : {Activation::none, Activation::relu}) {
    nn::CausalConv layer(4, 6, 5, activation);
    randomise(layer, 4);
    const Tensor x = random_normal({2, 11, 6}, DType::f32, 9).to(tested_device());
    const Tensor whole = layer(Variable(x)).value();
    nn::CausalConv::State state = layer.start(2);
    for (i64 t = 0; t < 11; ++t) {
      const Variable y = layer.step(state, Variable(x.slice(1, t, t + 1)));
      CHECK(relative_error(y.value(), whole.slice(1, t, t + 1)) < tolerance::forward_f32_long);
    }
  }
}

}  // TEST_SUITE("nn")
