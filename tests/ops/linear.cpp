#include "ops/linear/linear.h"

#include "autograd/tape.h"
#include "ops/views/views.h"
#include "runtime/allocator.h"
#include "tests/check.h"

namespace weft {
namespace {

std::vector<Variable> with_bias(std::span<const Variable> in) {
  return {linear(in[0], transpose(in[1], 0, 1), in[2])};
}
std::vector<Variable> without_bias(std::span<const Variable> in) {
  return {linear(in[0], transpose(in[1], 0, 1))};
}

TEST_SUITE("ops") {

// Small weights use tiles, large ones the library; 300 rows are several tasks.
TEST_CASE("a weight that lies turned gives what its packed copy gives") {
  for (const Shape& sizes : {Shape{1, 20, 30}, Shape{300, 20, 30}, Shape{1, 65, 2100},
                             Shape{300, 65, 2100}, Shape{3, 1, 7}, Shape{3, 7, 1}}) {
    const i64 rows = sizes[0], n = sizes[1], m = sizes[2];
    CAPTURE(fmt::format("{}", sizes));
    const Tensor x = random_normal({rows, n}, DType::f64, 1),
                 table = random_normal({m, n}, DType::f64, 2),
                 bias = random_normal({m}, DType::f64, 3);
    const auto packed = [](std::span<const Variable> in) {
      return std::vector{linear(in[0], in[1], in[2])};
    };
    const Run turned = run(with_bias, {x, table, bias});
    const Run wanted = run(packed, {x, table.transpose(0, 1).clone(), bias});
    CHECK(relative_error(turned.outputs[0], wanted.outputs[0]) <= tolerance::forward_f64);
    CHECK(relative_error(turned.gradients[0], wanted.gradients[0]) <= tolerance::backward_f64);
    CHECK(relative_error(turned.gradients[1], wanted.gradients[1].transpose(0, 1).clone()) <=
          tolerance::backward_f64);
    CHECK(relative_error(turned.gradients[2], wanted.gradients[2]) <= tolerance::backward_f64);
  }
  CHECK_GRADIENTS(without_bias,
                  {random_normal({5, 4}, DType::f64, 1), random_normal({6, 4}, DType::f64, 2)});
}

// A model that generates text multiplies one row by the table of its embedding for every token.
TEST_CASE("a weight that lies turned is not copied") {
  CachingAllocator& memory = allocator(tested_device());
  const Tensor table = random_normal({2000, 64}, DType::f32, 1).to(tested_device());
  const Variable x = random_normal({1, 64}, DType::f32, 2).to(tested_device());
  const Tape::Pause pause;
  const std::size_t before = memory.counts().live;
  memory.reset_peak();
  const Variable logits = linear(x, transpose(Variable(table), 0, 1));
  CHECK(memory.counts().peak - before < std::size_t(2000 * 64 * 4 / 8));
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
