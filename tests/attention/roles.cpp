// What the interface promises for inputs beyond queries, keys and values, tested with the toy
// block.
#include "autograd/tape.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/toy.h"

namespace weft {
namespace {

constexpr i64 B = 2, N = 7, d = 3;

// x, gate, w, table, ω; then marks and bias where they are given.
std::vector<Tensor> toy_inputs(i64 width = d, i64 extra = 2, i64 rows = 4) {
  const auto normal = [](const Shape& shape, std::uint64_t seed) {
    return random_normal(shape, DType::f64, seed);
  };
  return {normal({B, N, d}, 1), normal({B, N, width}, 2), normal({d, 2 * d + extra}, 3),
          normal({rows, d}, 4), normal({3, d}, 5)};
}

TEST_SUITE("attention") {

TEST_CASE("roles: tensors say the sizes that are options, and options must agree with them") {
  CHECK(attended("toy", toy_inputs(5)).shape() == Shape{B, N, 5});
  CHECK(attended("toy:width=5", toy_inputs(5)).shape() == Shape{B, N, 5});
  CHECK_ERROR(attended("toy:width=4", toy_inputs(5)),
              "gate is [B, N, width] with width = 5, but the option says width=4");
  CHECK_ERROR(attended("toy:features=4", toy_inputs()),
              "omega is [features, d] with features = 3, but the option says features=4");
  CHECK_ERROR(attended("toy", toy_inputs(d, 3)), "w must be [d, 2d+extra] with 2d+extra = 8; got");
  CHECK(attended("toy:extra=3", toy_inputs(d, 3)).shape() == Shape{B, N, d});
}

TEST_CASE("roles: tensors of N_max may be longer than the sequence, not shorter") {
  std::vector<Tensor> inputs = toy_inputs();
  const Run longer = attended_run("toy", inputs);  // rows for 16 positions
  inputs[3] = inputs[3].slice(0, 0, 2);            // for 8
  const Run enough = attended_run("toy", inputs);
  CHECK(same_bits(longer.outputs[0], enough.outputs[0]));
  CHECK(relative_error(longer.gradients[3].slice(0, 0, 2), enough.gradients[3]) == 0);
  for (const double x : longer.gradients[3].slice(0, 2, 4).to_vector<double>()) CHECK(x == 0);
  inputs[3] = inputs[3].slice(0, 0, 1);
  CHECK_ERROR(attended("toy", inputs), "table must be [⌈N_max/step⌉, d] with ⌈N_max/step⌉ = 2");
}

TEST_CASE("roles: drawn inputs are drawn by the call's key, come out, and can be handed in") {
  std::vector<Tensor> inputs = toy_inputs();
  inputs.pop_back();
  AttentionCall call;
  call.random = {.seed = 3};
  const Choices drawn = chosen("toy:features=6", inputs, call);
  REQUIRE(drawn.at("omega").shape() == Shape{6, d});
  AttentionCall given = call;
  given.random = {.seed = 4};
  const Tensor other = attended("toy:features=6", inputs, given);
  CHECK_FALSE(same_bits(other, attended("toy:features=6", inputs, call)));
  given.given["omega"] = drawn.at("omega");
  CHECK(same_bits(attended("toy:features=6", inputs, given),
                  attended("toy:features=6", inputs, call)));
  inputs.push_back(drawn.at("omega"));
  CHECK(same_bits(attended("toy", inputs, call), attended("toy:features=6", inputs, given)));
}

TEST_CASE("roles: indices are integers, and a bias may be one for all items") {
  std::vector<Tensor> inputs = toy_inputs();
  const Tensor plain = attended("toy", inputs);
  inputs.push_back(Tensor::from(std::vector<i64>{1, 4}, {2}));
  const Tensor marked = attended("toy", inputs);
  CHECK_FALSE(same_bits(marked, plain));
  const Tensor bias = Tensor::zeros({1, 1, N, N}, DType::f64);
  for (const i64 j : {1, 4}) bias.slice(3, j, j + 1).fill(1);
  std::vector<Tensor> biased = inputs;
  biased[5] = Tensor();
  biased.push_back(bias);
  CHECK(relative_error(attended("toy", biased), marked) <= tolerance::forward_f64);
  inputs[5] = inputs[5].to(DType::f64);
  CHECK_ERROR(attended("toy", inputs), "toy: marks must be i64, got f64");
  inputs[5] = Tensor::from(std::vector<i64>{1, 9}, {2});
  CHECK_ERROR(attended("toy", inputs), "marks holds 9, outside 0 … 6");
}

TEST_CASE("roles: the offset is where the call's positions begin") {
  std::vector<Tensor> inputs = toy_inputs();
  AttentionCall call;
  call.offset = 8;  // two rows of the table on
  const Tensor moved = attended("toy", inputs, call);
  inputs[3] = inputs[3].slice(0, 2, 4);
  CHECK(same_bits(attended("toy", inputs), moved));
}

TEST_CASE("roles: a penalty is a further output, with a gradient of its own") {
  std::vector<Variable> leaves;
  for (const Tensor& input : on_device(toy_inputs())) leaves.push_back(Variable::leaf(input));
  Tape tape;
  const Attended attended = attend(AttentionSpec("toy"), {}, leaves);
  const Variable& table = leaves[3];
  double sum = 0;
  for (const double x : table.value().to(Device{}).to_vector<double>()) sum += x;
  CHECK(attended.penalty.value().item() == doctest::Approx(0.1 * sum / double(4 * d)));
  tape.backward(attended.penalty);
  for (const double x : table.gradient().to(Device{}).to_vector<double>()) {
    CHECK(x == doctest::Approx(0.1 / double(4 * d)));
  }
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
