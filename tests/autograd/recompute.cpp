#include "autograd/recompute.h"

#include <array>

#include "autograd/tape.h"
#include "ops/dropout/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "runtime/allocator.h"
#include "tests/check.h"

namespace weft {
namespace {

// Two results of two inputs and a parameter that the function holds itself, with dropout inside.
struct Block {
  Variable parameter = Variable::leaf(random_normal({6}, DType::f64, 1));

  std::vector<Variable> operator()(std::span<const Variable> in) const {
    const Variable hidden = dropout(gelu(add(mul(in[0], parameter), in[1])), 0.4, {7, 1, 2});
    return {softmax(hidden), mul(hidden, parameter)};
  }
};

TEST_SUITE("autograd") {

TEST_CASE("recompute gives the bits of the plain run: values and gradients, dropout inside") {
  const std::vector<Tensor> inputs{random_normal({4, 6}, DType::f64, 2),
                                   random_normal({4, 6}, DType::f64, 3)};
  const Block block;
  const Run plain = run(block, inputs);
  const Tensor plain_parameter = block.parameter.place()->take();
  int calls = 0;
  const auto counted = [&](std::span<const Variable> in) {
    ++calls;
    return block(in);
  };
  const Run again =
      run([&](std::span<const Variable> in) { return recompute(counted, in); }, inputs);
  CHECK(calls == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(same_bits(plain.outputs[i], again.outputs[i]));
    CHECK(same_bits(plain.gradients[i], again.gradients[i]));
  }
  CHECK(same_bits(plain_parameter, block.parameter.gradient()));
}

TEST_CASE("recompute passes the gradient check, nested too") {
  const Block block;
  const auto once = [&](std::span<const Variable> in) { return recompute(block, in); };
  const auto twice = [&](std::span<const Variable> in) { return recompute(once, in); };
  const std::vector<Tensor> inputs{random_normal({3, 6}, DType::f64, 2),
                                   random_normal({3, 6}, DType::f64, 3)};
  CHECK_GRADIENTS(once, inputs);
  CHECK_GRADIENTS(twice, inputs);
}

TEST_CASE("recompute: a parameter inside is complete when its last use has been walked") {
  const Block block;
  const Variable x = Variable::leaf(random_normal({3, 6}, DType::f64, 2));
  const auto nested = [&](std::span<const Variable> in) { return recompute(block, in); };
  const auto walk = [&](bool again) {
    std::vector<Tensor> complete;
    block.parameter.place()->clear();
    Tape tape;
    tape.on_complete([&](Gradient& place) {
      if (&place == block.parameter.place().get()) complete.push_back(place.sum().clone());
    });
    const std::vector<Variable> first =
        again ? recompute(nested, std::array{x, x}) : block(std::array{x, x});
    const std::vector<Variable> second = again ? recompute(block, first) : block(first);
    tape.backward(second, std::array{random_normal({3, 6}, DType::f64, 5),
                                     random_normal({3, 6}, DType::f64, 6)});
    return complete;
  };
  const std::vector<Tensor> plain = walk(false), again = walk(true);
  REQUIRE(plain.size() == 1);
  REQUIRE(again.size() == 1);
  CHECK(same_bits(again[0], plain[0]));
  CHECK(same_bits(again[0], block.parameter.gradient()));
}

TEST_CASE("without a tape recompute is the function, called once") {
  int calls = 0;
  const std::vector<Variable> inputs{Variable::leaf(random_normal({3}, DType::f64, 1))};
  const auto f = [&](std::span<const Variable> in) {
    ++calls;
    return std::vector{exp(in[0])};
  };
  const std::vector<Variable> results = recompute(f, inputs);
  CHECK(calls == 1);
  CHECK_FALSE(results[0].wants_gradient());
}

TEST_CASE("recompute: what wants no gradient stays a constant") {
  const Variable x = Variable::leaf(random_normal({3}, DType::f64, 1));
  const std::vector<Variable> inputs{x}, frozen{x.detached()};
  Tape tape;
  const auto detached = [](std::span<const Variable> in) {
    return std::vector{exp(in[0].detached())};
  };
  const Variable constant = recompute(detached, inputs)[0];
  CHECK_FALSE(constant.wants_gradient());
  const auto plain = [](std::span<const Variable> in) { return std::vector{exp(in[0])}; };
  CHECK_FALSE(recompute(plain, frozen)[0].wants_gradient());
  tape.backward(sum(add(x, constant)));
  CHECK(x.gradient().to_vector<double>() == std::vector<double>{1, 1, 1});
}

TEST_CASE("recompute: results that f does not make, and gradients that nobody wants") {
  const Variable x = Variable::leaf(random_normal({3}, DType::f64, 1));
  const Variable constant = random_normal({3}, DType::f64, 2);
  std::vector<std::pair<std::size_t, bool>> wanted;
  const auto noted = [&](std::span<const Variable> in) {
    for (std::size_t i = 0; i < in.size(); ++i) wanted.emplace_back(i, in[i].wants_gradient());
    return mul(in[0], in[1]);
  };
  Tape tape;
  const Variable outside = exp(x);
  const std::vector<Variable> results = recompute(
      [&](std::span<const Variable> in) {
        return std::vector{outside, in[0], noted(in)};
      },
      std::array{x, constant});
  Variable all = results[0];
  for (const std::size_t i : {1, 2}) all = add(all, results[i]);
  tape.backward(sum(all));
  for (i64 i = 0; i < 3; ++i) {
    const double a = x.value().data<double>()[i], b = constant.value().data<double>()[i];
    CHECK(x.gradient().data<double>()[i] == doctest::Approx(std::exp(a) + 1 + b));
  }
  using Wanted = std::pair<std::size_t, bool>;
  CHECK(wanted == std::vector<Wanted>{{0, true}, {1, false}, {0, true}, {1, false}});
}

TEST_CASE("recompute: a parameter of several blocks is converted once in backward, too") {
  const Tensor weight = random_normal({1 << 10}, DType::f32, 1);
  const Variable x = Variable::leaf(random_normal({3}, DType::f64, 2));
  std::vector<const void*> copies;
  const auto block = [&](std::span<const Variable> in) {
    copies.push_back(compute_copy(weight, DType::bf16).bytes());
    return std::vector{exp(in[0])};
  };
  Tape tape;
  tape.backward(sum(add(recompute(block, std::array{x})[0], recompute(block, std::array{x})[0])));
  REQUIRE(copies.size() == 4);
  for (const void* const copy : copies) CHECK(copy == copies[0]);
}

TEST_CASE("between the passes only the inputs are kept") {
  const Variable x = Variable::leaf(random_normal({1 << 14}, DType::f64, 1));
  const auto deep = [](std::span<const Variable> in) {
    Variable y = in[0];
    for (int i = 0; i < 10; ++i) y = silu(y);
    return std::vector{y};
  };
  const std::size_t one = (1 << 14) * sizeof(double);
  const auto kept = [&](bool again) {
    const Tape tape;
    const std::size_t before = allocator().counts().live;
    const std::vector<Variable> y =
        again ? recompute(deep, std::span(&x, 1)) : deep(std::span(&x, 1));
    return allocator().counts().live - before;
  };
  CHECK(kept(false) >= 10 * one);
  CHECK(kept(true) <= one + one / 8);
}

}  // TEST_SUITE("autograd")
}  // namespace
}  // namespace weft
