// bf16 as the type of storage: what an op returns is what f32 gives for the same numbers, rounded
// once.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "autograd/tape.h"
#include "ops/cast/cast.h"
#include "ops/feed_forward/feed_forward.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "runtime/arithmetic.h"
#include "runtime/matmul.h"
#include "runtime/prepared.h"
#include "tests/bytes.h"
#include "tests/check.h"
#include "tests/ops/cases.h"
#include "tests/roundings.h"
#include "tests/threads.h"

namespace weft {
namespace {

constexpr double half_unit = tolerance::half_unit_bf16;

// Each element of c is the sum of products a b, but for the roundings.
void check_elements(const Tensor& c, const Tensor& a, const Tensor& b) {
  CAPTURE(name_of(c.dtype()));
  CAPTURE(a.shape());
  CAPTURE(b.shape());
  const Tensor exact = matmul(a.to(DType::f64), b.to(DType::f64));
  CHECK(beyond_roundings(c, exact, matmul(magnitude(a), magnitude(b)), a.size(-1),
                         c.dtype() == DType::bf16) == "");
}

Tensor narrow_normal(const Shape& shape, std::uint64_t seed) {
  return random_normal(shape, DType::f32, seed).to(DType::bf16);
}
Tensor here(const Tensor& x) { return x.to(tested_device()); }

TEST_SUITE("ops") {

TEST_CASE("products in bf16: sums in f32, one rounding") {
  const auto check = [](const Tensor& a, const Tensor& b) {
    Shape shape = a.shape();
    shape[a.rank() - 1] = b.size(-1);
    for (const DType type : {DType::bf16, DType::f32}) {
      const Tensor c = here(Tensor::empty(shape, type));
      matmul_into(a, b, c);
      check_elements(c.to(Device{}), a.to(Device{}), b.to(Device{}));
    }
  };
  const auto turned = [](const Tensor& x) { return x.transpose(-2, -1).clone().transpose(-2, -1); };
  for (const i64 m : {1, 3, 64, 130}) {
    for (const i64 k : {1, 7, 65, 128}) {
      for (const i64 n : {1, 5, 33, 64}) {
        check(here(narrow_normal({m, k}, 1)), here(narrow_normal({k, n}, 2)));
      }
    }
  }
  const Tensor a = here(narrow_normal({37, 301}, 1)), b = here(narrow_normal({301, 307}, 2));
  for (const Tensor& left : {a, scattered(a), turned(a)}) {
    for (const Tensor& right : {b, scattered(b), turned(b)}) check(left, right);
  }
  check(here(narrow_normal({2, 3, 5, 7}, 3)), here(narrow_normal({2, 3, 7, 4}, 4)));
  check(here(narrow_normal({2, 3, 5, 7}, 3)), here(narrow_normal({7, 4}, 4)));
  const Tensor none =
      matmul(here(Tensor::empty({3, 0}, DType::bf16)), here(Tensor::empty({0, 4}, DType::bf16)));
  CHECK(same_bits(none.to(Device{}), Tensor::zeros({3, 4}, DType::bf16)));
}

TEST_CASE("products in bf16 on top of what is there are rounded once") {
  const Tensor a = narrow_normal({20, 100}, 1), b = narrow_normal({100, 30}, 2);
  for (const DType type : {DType::bf16, DType::f32}) {
    const Tensor before = narrow_normal({20, 30}, 3).to(type), c = here(before).clone();
    matmul_into(here(a), here(b), c, true);
    // As one product, of [a, 1 …] and [b; before].
    const Tensor wide_a = Tensor::zeros({20, 120}, DType::bf16);
    const Tensor wide_b = Tensor::empty({120, 30}, DType::bf16);
    wide_a.slice(1, 0, 100).copy_from(a), wide_b.slice(0, 0, 100).copy_from(b);
    for (i64 i = 0; i < 20; ++i) wide_a.slice(0, i, i + 1).slice(1, 100 + i, 101 + i).fill(1);
    wide_b.slice(0, 100, 120).copy_from(before.to(DType::bf16));
    check_elements(c.to(Device{}), wide_a, wide_b);
  }
}

TEST_CASE("products in bf16: the bits do not depend on the number of threads") {
  const Tensor a = narrow_normal({3, 1200, 40}, 1), b = narrow_normal({40, 50}, 2);
  const auto products = [&](int team) {
    const ThreadsOf scope(team);
    return matmul(a, b);
  };
  const Tensor one = products(1);
  CHECK(same_bits(one, products(2)));
  CHECK(same_bits(one, products(5)));
}

TEST_CASE("every op: bf16 against f64") {
  const ThreadsOf one(1);
  std::vector<OpCase> cases = op_cases();
  if (!few_wanted()) std::ranges::copy(large_op_cases(), std::back_inserter(cases));
  for (const OpCase& c : cases) {
    CAPTURE(c.name);
    const std::vector<Tensor> narrow = in_type(DType::bf16, c.inputs);
    const Run got = run(c.f, narrow, 17, tested_device(), DType::bf16);
    const Run wanted = run(c.f, in_f64(narrow), 17, Device{}, DType::bf16);
    for (std::size_t i = 0; i < got.outputs.size(); ++i) {
      const DType type = got.outputs[i].dtype();
      CHECK((type == DType::bf16 || type == DType::f32));
      const double rounding = type == DType::bf16 ? c.roundings * half_unit : 0;
      CHECK(relative_error(got.outputs[i], wanted.outputs[i]) <= rounding + tolerance::forward_f32);
    }
    for (std::size_t i = 0; i < got.gradients.size(); ++i) {
      if (!wanted.gradients[i].defined()) continue;
      CHECK(got.gradients[i].dtype() == DType::bf16);
      CHECK(relative_error(got.gradients[i], wanted.gradients[i]) <=
            c.roundings * half_unit + tolerance::backward_f32);
    }
  }
}

TEST_CASE("ops that read bf16 as it is: the bits of f32, rounded") {
  const auto is_product = [](const std::string& name) {  // of bf16, or of two ops
    const std::vector<std::string> products{"linear", "feed_forward", "causal_conv1d", "mean"};
    return std::ranges::any_of(products, [&](const auto& p) { return name.starts_with(p); });
  };
  std::vector<OpCase> cases = op_cases();
  if (!few_here()) std::ranges::copy(large_op_cases(), std::back_inserter(cases));
  for (const OpCase& c : cases) {
    if (c.roundings > 1 || is_product(c.name)) continue;
    CAPTURE(c.name);
    const std::vector<Tensor> narrow = in_type(DType::bf16, c.inputs);
    const Run got = run(c.f, narrow, 17, Device{}, DType::bf16);
    Run wanted = run(c.f, in_f32(narrow), 17, Device{}, DType::bf16);
    for (std::size_t i = 0; i < got.outputs.size(); ++i) {
      wanted.outputs[i] = wanted.outputs[i].to(got.outputs[i].dtype());
    }
    for (std::size_t i = 0; i < got.gradients.size(); ++i) {
      if (got.gradients[i].defined()) wanted.gradients[i] = wanted.gradients[i].to(DType::bf16);
    }
    check_same_bits(got, wanted);
  }
}

TEST_CASE("bf16 and f32 in one op: the gradients of f32 inputs are not rounded") {
  const auto sum_of = [](std::span<const Variable> in) { return std::vector{add(in[0], in[1])}; };
  const auto product = [](std::span<const Variable> in) { return std::vector{mul(in[0], in[1])}; };
  const auto norm = [](std::span<const Variable> in) {
    return std::vector{residual_layer_norm(in[0], in[1], in[2], in[3], {})};
  };
  const auto check = [](const Differentiable& f, const std::vector<Tensor>& inputs) {
    const Run got = run(f, inputs, 17, tested_device(), DType::bf16);
    const Run wanted = run(f, in_f64(inputs), 17, Device{}, DType::bf16);
    CHECK(got.outputs[0].dtype() == DType::bf16);
    CHECK(relative_error(got.outputs[0], wanted.outputs[0]) <= half_unit + tolerance::forward_f32);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CHECK(got.gradients[i].dtype() == inputs[i].dtype());
      const double rounding = inputs[i].dtype() == DType::bf16 ? half_unit : 0;
      CHECK(relative_error(got.gradients[i], wanted.gradients[i]) <=
            rounding + tolerance::backward_f32);
    }
  };
  const Tensor x = narrow_normal({5, 7, 24}, 1);
  for (const Shape& shape : {Shape{24}, Shape{7, 1}, Shape{5, 7, 24}}) {
    const Tensor learnt = random_normal(shape, DType::f32, 2);
    for (const Differentiable& f : {Differentiable(sum_of), Differentiable(product)}) {
      check(f, {x, learnt});
      check(f, {learnt, x});
    }
  }
  const Tensor gain = random_normal({24}, DType::f32, 2), bias = random_normal({24}, DType::f32, 3);
  check(norm, {x, narrow_normal({5, 7, 24}, 4), gain, bias});
  CHECK_ERROR(layer_norm(Variable(here(x)), here(gain.to(DType::f64)), here(bias.to(DType::f64))),
              "layer_norm: x is bf16, another input f64");
}

TEST_CASE("linear in bf16: a weight in f32 is rounded for the products, and its gradient is not") {
  const auto f = [](std::span<const Variable> in) {
    return std::vector{linear(in[0], in[1], in.size() > 2 ? in[2] : Variable{})};
  };
  for (const i64 rows : {1, 50, 2100}) {
    const Tensor x = narrow_normal({rows, 24}, 1);
    const Tensor weight = random_normal({24, 40}, DType::f32, 2);
    const Tensor bias = random_normal({40}, DType::f32, 3);
    const std::vector<Tensor> inputs{x, weight, bias};
    const Run got = run(f, inputs, 17, tested_device(), DType::bf16);
    const Run wanted = run(f, in_f64(in_type(DType::bf16, inputs)), 17, Device{}, DType::bf16);
    CHECK(got.outputs[0].dtype() == DType::bf16);
    CHECK(relative_error(got.outputs[0], wanted.outputs[0]) <= half_unit + tolerance::forward_f32);
    CHECK(got.gradients[0].dtype() == DType::bf16);
    CHECK(relative_error(got.gradients[0], wanted.gradients[0]) <=
          half_unit + tolerance::backward_f32);
    for (const std::size_t learnt : {1, 2}) {
      CHECK(got.gradients[learnt].dtype() == DType::f32);
      CHECK(relative_error(got.gradients[learnt], wanted.gradients[learnt]) <=
            tolerance::backward_f32);
    }
  }
  CHECK_ERROR(
      linear(Variable(here(narrow_normal({2, 3}, 1))), here(random_normal({3, 4}, DType::f64, 2))),
      "linear: x is bf16, the weight f64");
}

// Three calls, one after the other, with the same weights or with clones that hold the same
// numbers, of which none is kept prepared.
TEST_CASE("weights in bf16 that several calls share are prepared once, and give the same bits") {
  constexpr i64 calls = 3, width = 48, hidden = 80;
  using Chained = Variable (*)(const Variable&, const std::vector<Variable>&);
  const Chained map = [](const Variable& x, const std::vector<Variable>& w) {
    return linear(x, w[0], w[1]);
  };
  const Chained feed = [](const Variable& x, const std::vector<Variable>& w) {
    return feed_forward(x, w[0], w[1], w[2], w[3], Activation::gelu);
  };
  struct Walk {
    Tensor y, dx;
    std::vector<Tensor> gradients = {};  // of the weights, summed over the calls
    std::size_t prepared_again = 0;      // bytes, of the shared weights
  };
  const auto walk = [&](const Chained& f, const std::vector<Tensor>& values, bool shared) {
    std::vector<std::vector<Variable>> weights(calls);
    for (i64 call = 0; call < calls; ++call) {
      for (const Tensor& value : values) {
        weights[call].push_back(Variable::leaf(shared ? value : value.clone()));
      }
      if (shared && call > 0) weights[call] = weights[0];
    }
    const Variable x = Variable::leaf(narrow_normal({700, width}, 1));
    const Tape step;  // its copies outlive the walk of the inner tape
    Variable y = x;
    {
      Tape tape;
      for (i64 call = 0; call < calls; ++call) y = f(y, weights[call]);
      tape.backward(y, narrow_normal({700, width}, 2));
    }
    Walk result{y.value(), x.gradient()};
    for (std::size_t i = 0; i < values.size(); ++i) {
      Tensor sum = weights[calls - 1][i].gradient();
      for (i64 call = calls - 2; call >= 0 && !shared; --call) {
        sum = added(sum, weights[call][i].gradient());
      }
      result.gradients.push_back(sum);
      if (!shared || values[i].rank() != 2) continue;
      const Tensor copy = compute_copy(weights[0][i].value(), DType::bf16);
      for (const Tensor& used : {copy, copy.transpose(0, 1)}) {
        result.prepared_again += bytes_taken([&] { prepared(used); });
      }
    }
    return result;
  };
  const auto check = [&](const Chained& f, const std::vector<Tensor>& weights) {
    std::vector<Walk> walks;
    for (const int team : {1, 2, 5}) {
      const ThreadsOf scope(team);
      for (const bool shared : {false, true}) walks.push_back(walk(f, weights, shared));
    }
    for (const Walk& got : walks) {
      CHECK(same_bits(got.y, walks[0].y));
      CHECK(same_bits(got.dx, walks[0].dx));
      for (std::size_t i = 0; i < weights.size(); ++i) {
        CHECK(same_bits(got.gradients[i], walks[0].gradients[i]));
      }
      CHECK(got.prepared_again == 0);
    }
  };
  const auto learnt = [](const Shape& shape, std::uint64_t seed) {
    return random_normal(shape, DType::f32, seed);
  };
  const Tensor square = learnt({width, width}, 3), bias = learnt({width}, 4);
  check(map, {square, bias});
  check(feed, {learnt({width, hidden}, 5), learnt({hidden}, 6), learnt({hidden, width}, 7), bias});
}

TEST_CASE("columns of a weight are converted to bf16 once, too") {
  const ThreadsOf one(1);
  constexpr i64 n = 256, m = 512;
  const Variable whole = Variable::leaf(random_normal({n, m + 3}, DType::f32, 1));
  const Variable x = narrow_normal({40, n}, 2);
  const Tape tape;
  const auto call = [&] { return linear(x, slice(whole, 1, 3, m + 3), {}); };
  const Tensor first = call().value(), second = call().value();  // which keeps a layout, too
  const std::size_t held = allocator().counts().live;
  const Tensor third = call().value();
  CHECK(allocator().counts().live - held < n * m);
  CHECK(same_bits(first, third));
  CHECK(same_bits(first, second));
}

TEST_CASE("weights in bf16 that are rewritten are prepared again") {
  const Variable x(narrow_normal({30, 48}, 1));
  const Variable narrow = Variable::leaf(Tensor::empty({48, 48}, DType::bf16));
  const Variable master = Variable::leaf(Tensor::empty({48, 48}, DType::f32));
  const Tape outer;  // keeps nothing of a weight in bf16, of which it makes no copy
  for (const std::uint64_t seed : {2, 3, 4}) {
    const Variable value(narrow_normal({48, 48}, seed));
    const Tensor wanted = linear(x, value).value();
    narrow.value().copy_from(value.value());
    for (int call = 0; call < 3; ++call) CHECK(same_bits(linear(x, narrow).value(), wanted));
    master.value().copy_from(value.value());
    const Tape::Pause pause;
    const Tape step;  // a parameter changes between two steps
    for (int call = 0; call < 3; ++call) CHECK(same_bits(linear(x, master).value(), wanted));
  }
}

}  // TEST_SUITE("ops")

}  // namespace
}  // namespace weft
