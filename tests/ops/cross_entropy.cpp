#include "ops/cross_entropy/cross_entropy.h"

#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "ops/linear/linear.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/allocator.h"
#include "runtime/matmul.h"
#include "tests/check.h"
#include "tests/ops/cases.h"

namespace weft {
namespace {

// −ln softmax(x)[t] in long double.
std::vector<double> plain_rows(const Tensor& logits, const Tensor& targets) {
  const std::vector<double> x = logits.to(DType::f64).to_vector<double>();
  const std::vector<i64> t = targets.to_vector<i64>();
  const std::size_t V = static_cast<std::size_t>(logits.size(-1));
  std::vector<double> nats;
  for (std::size_t row = 0; row < t.size(); ++row) {
    const long double own = x[row * V + static_cast<std::size_t>(t[row])];
    long double z = 0;
    for (std::size_t v = 0; v < V; ++v) z += std::exp(x[row * V + v] - own);
    nats.push_back(static_cast<double>(std::log(z)));
  }
  return nats;
}

TEST_SUITE("ops") {

TEST_CASE("cross-entropy agrees with its formula in long double") {
  for (const i64 V : {1, 2, 27, 33, 5000}) {
    const Tensor x = random_normal({3, 4, V}, DType::f64, 1).to(tested_device());
    const Tensor t = random_integers({3, 4}, V, 2).to(tested_device());
    const Tensor wanted = Tensor::from(plain_rows(x, t), {3, 4});
    CAPTURE(V);
    CHECK(relative_error(cross_entropy_rows(x, t), wanted) <= tolerance::forward_f64);
    CHECK(std::abs(cross_entropy(x, t).value().item() - mean(wanted).value().item()) <=
          tolerance::forward_f64 * (1 + mean(wanted).value().item()));
    const Tensor narrow = x.to(DType::f32), rows = cross_entropy_rows(narrow, t);
    CHECK(rows.dtype() == DType::f64);
    CHECK(rows.shape() == Shape{3, 4});
    if (V > 1) {
      CHECK(relative_error(rows, Tensor::from(plain_rows(narrow, t), {3, 4})) <=
            tolerance::forward_f32);
    }
  }
}

TEST_CASE("the gradient is softmax less one at the target, over the number of targets") {
  const Variable x = Variable::leaf(random_normal({6, 9}, DType::f64, 1).to(tested_device()));
  const Tensor t = random_integers({6}, 9, 2);
  Tape tape;
  tape.backward(scale(cross_entropy(x, t.to(tested_device())), 12));
  const Tensor wanted = softmax(x.detached()).value().to(Device{});
  for (i64 row = 0; row < 6; ++row) {
    wanted.view<double, 2>()(row, t.view<i64, 1>()(row)) -= 1;
  }
  CHECK(relative_error(x.gradient(), scale(wanted, 2).value()) <= tolerance::backward_f64);
}

TEST_CASE("confident and hopeless predictions, large and infinite logits") {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor x = Tensor::from(std::vector<double>{40, 0, 1e4, -1e4, -infinite, 5, 0, 0}, {4, 2})
                         .to(type)
                         .to(tested_device());
    const Tensor t = Tensor::from(std::vector<i64>{0, 1, 1, 0}, {4}).to(tested_device());
    const std::vector<double> nats = cross_entropy_rows(x, t).to_vector<double>();
    CHECK(nats[0] < 1e-15);
    CHECK(nats[0] >= 0);
    CHECK(nats[1] == 2e4);
    CHECK(nats[2] == 0);
    CHECK(std::abs(nats[3] - std::log(2.0)) <= tolerance::forward_f32);
    const Run result = run(
        [&](std::span<const Variable> in) { return std::vector{cross_entropy(in[0], t)}; }, {x});
    for (const double g : result.gradients[0].to(DType::f64).to_vector<double>()) {
      CHECK(std::isfinite(g));
    }
    const Tensor impossible = Tensor::zeros({4}, DType::i64, tested_device());
    CHECK(cross_entropy_rows(x, impossible).to_vector<double>()[2] == infinite);
  }
}

TEST_CASE("gradients of logits with a large part in common are as exact as without it") {
  const Tensor t = random_integers({6}, 9, 2).to(tested_device());
  const Tensor exact = random_integers({6, 9}, 16, 1).to(DType::f32);  // and so with 2²⁰ more
  const Tensor near = exact.to(tested_device());
  const Tensor far = add(Variable(exact), Variable(Tensor::full({9}, 1 << 20, DType::f32)))
                         .value()
                         .to(tested_device());
  const Differentiable functions[] = {
      [&](std::span<const Variable> in) { return std::vector{cross_entropy(in[0], t)}; },
      [&](std::span<const Variable> in) { return std::vector{log_sum_exp(in[0])}; }};
  for (const Differentiable& f : functions) {
    CHECK(same_bits(run(f, {far}).gradients[0], run(f, {near}).gradients[0]));
  }
}

TEST_CASE("a long mean in f32 stays accurate") {
  const Tensor x = random_normal({20000, 27}, DType::f32, 1).to(tested_device());
  const Tensor t = random_integers({20000}, 27, 2).to(tested_device());
  double total = 0;
  for (const double nats : plain_rows(x, t)) total += nats;
  const double loss = cross_entropy(x, t).value().item();
  CHECK(std::abs(loss / (total / 20000) - 1) <= tolerance::forward_f32);
}

TEST_CASE("besides its inputs only two numbers a row are kept") {
  const WithCache cache;  // sizes are rounded
  const Variable x = Variable::leaf(random_normal({64, 512}, DType::f64, 1).to(tested_device()));
  const Tensor t = random_integers({64}, 512, 2).to(tested_device());
  Tape tape;
  const std::size_t before = allocator(tested_device()).counts().live;
  const Variable loss = cross_entropy(x, t);
  CHECK(allocator(tested_device()).counts().live - before == 2 * 64 * sizeof(double) + 64);
}

TEST_CASE("linear cross-entropy is cross-entropy of the products, whose logits it never holds") {
  const i64 R = 700, d = 6, V = 30011;
  const std::vector<Tensor> inputs{random_normal({2, R / 2, d}, DType::f64, 1),
                                   random_normal({V, d}, DType::f64, 2)};
  const Tensor t = random_integers({2, R / 2}, V, 3).to(tested_device());
  const auto fused = [&](std::span<const Variable> in) {
    return std::vector{linear_cross_entropy(in[0], in[1], t)};
  };
  const auto apart = [&](std::span<const Variable> in) {
    return std::vector{cross_entropy(linear(in[0], transpose(in[1], 0, 1)), t)};
  };
  auto& memory = allocator(tested_device());
  const std::size_t before = memory.counts().live;
  memory.reset_peak();
  const Run got = run(fused, inputs);
  CHECK(memory.counts().peak - before < static_cast<std::size_t>(R * V) * sizeof(double) / 4);
  const Run wanted = run(apart, inputs);
  CHECK(relative_error(got.outputs[0], wanted.outputs[0]) <= tolerance::forward_f64);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(relative_error(got.gradients[i], wanted.gradients[i]) <= tolerance::backward_f64);
  }
  const std::vector<Tensor> moved = on_device(inputs);
  CHECK(relative_error(linear_cross_entropy_rows(moved[0], moved[1], t),
                       cross_entropy_rows(matmul(moved[0], moved[1].transpose(0, 1)), t)) <=
        tolerance::forward_f64);
  CHECK_ERROR(linear_cross_entropy(moved[0], moved[0], t), "wanted x [.., d] and a table [V, d]");
}

TEST_CASE("linear cross-entropy of logits that differ by thousands from one class to the next") {
  const i64 V = 300;
  for (const DType type : {DType::f32, DType::f64}) {
    std::vector<double> classes(V, -9000);
    classes[7] = 1000, classes[140] = 8990, classes[299] = 9000;
    const Tensor table = Tensor::from(classes, {V, 1}).to(type).to(tested_device());
    const Tensor x =
        Tensor::from(std::vector<double>{1, -1, 0, 1}, {4, 1}).to(type).to(tested_device());
    const Tensor t = Tensor::from(std::vector<i64>{299, 0, 140, 7}, {4}).to(tested_device());
    const std::vector<double> nats = linear_cross_entropy_rows(x, table, t).to_vector<double>();
    CHECK(std::abs(nats[0] - std::log1p(std::exp(-10.0))) <= tolerance::forward_f32);
    CHECK(std::abs(nats[1] - std::log(297.0)) <= 1e-6);
    CHECK(std::abs(nats[2] - std::log(300.0)) <= 1e-6);
    CHECK(std::abs(nats[3] - 8000) <= 1e-3);
    const Run result = run(
        [&](std::span<const Variable> in) {
          return std::vector{linear_cross_entropy(in[0], in[1], t)};
        },
        {x, table});
    for (const Tensor& gradient : result.gradients) {
      for (const double g : gradient.to(DType::f64).to_vector<double>()) CHECK(std::isfinite(g));
    }
    // Impossible classes (−∞), among them all of the first hundred and thirty.
    std::fill(classes.begin(), classes.begin() + 130, -infinite);
    const Tensor without = Tensor::from(classes, {V, 1}).to(type).to(tested_device());
    const Tensor one = Tensor::full({1, 1}, 1, type, tested_device());
    const auto nats_of = [&](i64 target) {
      const Tensor id = Tensor::from(std::vector<i64>{target}, {1}).to(tested_device());
      return linear_cross_entropy_rows(one, without, id).to_vector<double>()[0];
    };
    CHECK(std::abs(nats_of(140) - std::log1p(std::exp(10.0))) <= 1e-5);
    CHECK(nats_of(3) == infinite);
  }
}

TEST_CASE("bad targets are refused with position and value") {
  const Tensor x = random_normal({2, 2, 5}, DType::f32, 1);
  const auto targets = [](i64 bad) { return Tensor::from(std::vector<i64>{0, 4, 1, bad}, {2, 2}); };
  CHECK_ERROR(cross_entropy(x, targets(5)),
              "cross_entropy: the target at position 3 of [2,2] is 5; there are 5");
  CHECK_ERROR(cross_entropy_rows(x, targets(-1)), "is -1");
  CHECK_ERROR(cross_entropy(x, Tensor::zeros({4}, DType::i64)),
              "need targets [2,2] in i64, got [4] i64");
  CHECK_ERROR(cross_entropy(x, Tensor::zeros({2, 2}, DType::f32)), "got [2,2] f32");
  CHECK_ERROR(cross_entropy(Tensor::empty({0, 5}, DType::f32), Tensor::empty({0}, DType::i64)),
              "there are no targets in [0]");
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
