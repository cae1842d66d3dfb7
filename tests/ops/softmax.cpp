#include "ops/softmax/softmax.h"

#include <cmath>
#include <limits>

#include "tests/check.h"

namespace weft {
namespace {

const Differentiable both = [](std::span<const Variable> in) {
  return std::vector{softmax(in[0]), log_sum_exp(in[0])};
};

Tensor f64(const std::vector<double>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

TEST_SUITE("ops") {

TEST_CASE("softmax and log-sum-exp agree with their formulas in long double") {
  for (const i64 V : {1, 2, 7, 16, 33, 2000}) {
    const Tensor x = random_normal({5, V}, DType::f64, 1);
    std::vector<double> y, lse;
    for (i64 row = 0; row < 5; ++row) {
      long double z = 0;
      for (i64 v = 0; v < V; ++v) z += std::exp((long double)x.view<double, 2>()(row, v));
      lse.push_back(static_cast<double>(std::log(z)));
      for (i64 v = 0; v < V; ++v) {
        y.push_back(static_cast<double>(std::exp((long double)x.view<double, 2>()(row, v)) / z));
      }
    }
    CAPTURE(V);
    CHECK(relative_error(softmax(x.to(tested_device())).value(), f64(y, {5, V})) <=
          tolerance::forward_f64);
    CHECK(relative_error(log_sum_exp(x.to(tested_device())).value(), f64(lse, {5})) <=
          tolerance::forward_f64);
  }
}

TEST_CASE("large logits overflow nothing, and a shift changes nothing") {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor x = f64({1000, 1001, 999, -1e30, -5, 3e4, 3e4, -3e4}, {2, 4}).to(type);
    const Run result = run(both, {x});
    const double e = std::exp(1.0), z = 1 + e + 1 / e;
    CHECK(relative_error(result.outputs[0], f64({1 / z, e / z, 1 / e / z, 0, 0, 0.5, 0.5, 0},
                                                {2, 4})) <= tolerance::forward_f32);
    CHECK(relative_error(result.outputs[1], f64({1000 + std::log(z), 3e4 + std::log(2)}, {2})) <=
          tolerance::forward_f32);
    for (const double g : result.gradients[0].to(DType::f64).to_vector<double>()) {
      CHECK(std::isfinite(g));
    }
  }
}

TEST_CASE("a row of minus infinity alone gives 0 and minus infinity, and no gradient") {
  for (const DType type : {DType::f32, DType::f64}) {
    for (const i64 V : {1, 5, 40}) {
      const Tensor x = random_normal({3, V}, type, 1);
      x.slice(0, 1, 2).fill(-infinite);
      const Run result = run(both, {x});
      for (const double y : result.outputs[0].slice(0, 1, 2).to(DType::f64).to_vector<double>()) {
        CHECK(y == 0);
      }
      CHECK(result.outputs[1].slice(0, 1, 2).item() == -infinite);
      for (const double g : result.gradients[0].slice(0, 1, 2).to(DType::f64).to_vector<double>()) {
        CHECK(g == 0);
      }
      const Run alone = run(both, {x.slice(0, 0, 1)});
      CHECK(same_bits(alone.outputs[0], result.outputs[0].slice(0, 0, 1)));
    }
  }
}

TEST_CASE("minus infinity in a row is probability 0 and gradient 0") {
  const Tensor x = f64({0.3, -infinite, -0.7, -infinite}, {1, 4}),
               without = f64({0.3, -0.7}, {1, 2});
  const Run masked = run(both, {x});
  const std::vector<double> y = masked.outputs[0].to_vector<double>();
  CHECK(y[1] == 0);
  CHECK(y[3] == 0);
  CHECK(relative_error(f64({y[0], y[2]}, {1, 2}), softmax(without.to(tested_device())).value()) <=
        tolerance::forward_f64);
  const std::vector<double> g = masked.gradients[0].to_vector<double>();
  CHECK(g[1] == 0);
  CHECK(g[3] == 0);
}

TEST_CASE("NaN shows in the whole row, and in no other") {
  const Tensor x = random_normal({3, 40}, DType::f32, 1);
  x.slice(0, 1, 2).slice(1, 39, 40).fill(std::nan(""));
  const Run result = run(both, {x});
  for (i64 row = 0; row < 3; ++row) {
    for (i64 v = 0; v < 40; ++v) {
      CHECK(std::isnan(result.outputs[0].view<float, 2>()(row, v)) == (row == 1));
    }
    CHECK(std::isnan(result.outputs[1].view<float, 1>()(row)) == (row == 1));
  }
}

// One logit is large; the many equal terms after it drift if f32 adds them one by one.
TEST_CASE("a long row is summed accurately in f32") {
  const i64 V = 1 << 20;
  const Tensor x = Tensor::full({1, V}, double(0.1f), DType::f32, tested_device());
  x.slice(1, 7, 8).fill(3);
  const double z = 1 + double(V - 1) * std::exp(double(0.1f) - 3);
  const double probability = softmax(x).value().slice(1, 7, 8).item();
  CHECK(std::abs(probability * z - 1) <= tolerance::forward_f32);
}

TEST_CASE("softmax of nothing and of scalars") {
  const Tensor nothing = Tensor::empty({2, 0}, DType::f64, tested_device());
  CHECK(softmax(nothing).shape() == Shape{2, 0});
  CHECK(log_sum_exp(nothing).value().to_vector<double>() ==
        std::vector<double>{-infinite, -infinite});
  CHECK_ERROR(softmax(Tensor::zeros({}, DType::f64)), "softmax: wanted at least one axis, got []");
  CHECK_ERROR(log_sum_exp(Tensor::zeros({}, DType::f64)), "log_sum_exp: wanted at least one axis");
  CHECK_ERROR(softmax(Tensor::zeros({2}, DType::i64)), "softmax: wanted f32, f64 or bf16");
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
