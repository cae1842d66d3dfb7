#include "ops/reduce/reduce.h"

#include <cmath>

#include "tests/check.h"

namespace weft {
namespace {

// Σ over axes first … last, index by index.
Tensor plain_sum(const Tensor& x, int first, int last) {
  Shape shape;
  i64 outer = 1, n = 1, inner = 1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (axis < first || axis > last) shape.push_back(x.size(axis));
    (axis < first ? outer : axis > last ? inner : n) *= x.size(axis);
  }
  const std::vector<double> from = x.to(DType::f64).to_vector<double>();
  std::vector<double> to(static_cast<std::size_t>(outer * inner));
  for (i64 o = 0; o < outer; ++o) {
    for (i64 j = 0; j < inner; ++j) {
      long double sum = 0;
      for (i64 i = 0; i < n; ++i) {
        sum += from[static_cast<std::size_t>((o * n + i) * inner + j)];
      }
      to[static_cast<std::size_t>(o * inner + j)] = static_cast<double>(sum);
    }
  }
  return Tensor::from(to, shape);
}

TEST_SUITE("ops") {

TEST_CASE("sums over any run of axes agree with the plain loop") {
  for (const Shape& shape : {Shape{3, 5, 7}, Shape{1, 4, 1}, Shape{2, 70000, 1}, Shape{300, 2, 70},
                             Shape{2, 3, 5000}, Shape{5000, 2, 3}}) {
    for (int first = 0; first < 3; ++first) {
      for (int last = first; last < 3; ++last) {
        CAPTURE(fmt::format("{} axes {} to {}", shape, first, last));
        const Tensor x = random_normal(shape, DType::f64, 1).to(tested_device());
        const Tensor wanted = plain_sum(x, first, last);
        CHECK(relative_error(sum_over(x, first, last), wanted) <= tolerance::forward_f64);
        CHECK(relative_error(sum_over(scattered(x), first, last), wanted) <=
              tolerance::forward_f64);
      }
    }
  }
}

TEST_CASE("sums and means over everything and over one axis") {
  const Tensor x = random_normal({3, 5, 7}, DType::f64, 1).to(tested_device());
  CHECK(sum(x).shape() == Shape{});
  CHECK(relative_error(sum(x).value(), plain_sum(x, 0, 2)) <= tolerance::forward_f64);
  CHECK(std::abs(mean(x).value().item() - plain_sum(x, 0, 2).item() / 105) <=
        tolerance::forward_f64);
  CHECK(sum(x, 1).shape() == Shape{3, 7});
  CHECK(relative_error(sum(x, -2).value(), plain_sum(x, 1, 1)) <= tolerance::forward_f64);
  const Tensor five = Tensor::full({}, 5, DType::f64);
  const Tensor total = plain_sum(x, 1, 1), average = mean(x, 1).value();
  for (i64 i = 0; i < 21; ++i) {
    const double wanted = total.to_vector<double>()[static_cast<std::size_t>(i)] / five.item();
    CHECK(std::abs(average.to_vector<double>()[static_cast<std::size_t>(i)] - wanted) <= 1e-15);
  }
}

// 0.1f repeatedly: accumulated in f32, a long sum drifts by per cents.
TEST_CASE("f32 is gathered in f64") {
  for (const Shape& shape : {Shape{3000000, 1}, Shape{1000000, 3}}) {
    const Tensor x = Tensor::full(shape, double(0.1f), DType::f32, tested_device());
    const Tensor sums = sum(x, 0).value();
    const double wanted = double(0.1f) * static_cast<double>(shape[0]);
    for (const float s : sums.to_vector<float>()) CHECK(s == static_cast<float>(wanted));
  }
}

TEST_CASE("sum_to undoes a broadcast, axis by axis") {
  const Tensor x = random_normal({2, 3, 4, 5}, DType::f64, 1).to(tested_device());
  CHECK(sum_to(x, x.shape()).same_storage(x));
  CHECK(relative_error(sum_to(x, {4, 5}), plain_sum(x, 0, 1)) <= tolerance::forward_f64);
  CHECK(relative_error(sum_to(x, {2, 3, 4, 1}).reshape({2, 3, 4}), plain_sum(x, 3, 3)) <=
        tolerance::forward_f64);
  CHECK(relative_error(sum_to(x, {3, 1, 5}),
                       plain_sum(plain_sum(x, 2, 2), 0, 0).reshape({3, 1, 5})) <=
        tolerance::forward_f64);
  CHECK(relative_error(sum_to(x, {1, 1, 1}), plain_sum(x, 0, 3).reshape({1, 1, 1})) <=
        tolerance::forward_f64);
  CHECK(sum_to(random_normal({1, 1, 3}, DType::f64, 1), {3}).shape() == Shape{3});
}

TEST_CASE("nothing sums to zero, and has no mean") {
  const auto nothing = [](const Shape& shape, DType dtype) {
    return Tensor::zeros(shape, dtype, tested_device());
  };
  CHECK(sum(nothing({0}, DType::f64)).value().item() == 0);
  CHECK(sum(nothing({0, 3}, DType::f32), 0).value().to_vector<float>() ==
        std::vector<float>{0, 0, 0});
  CHECK(sum(nothing({2, 0}, DType::f64), 0).shape() == Shape{0});
  CHECK(mean(nothing({2, 0}, DType::f64), 0).shape() == Shape{0});
  CHECK_ERROR(mean(nothing({0, 3}, DType::f64)), "nothing to average in [0,3]");
  CHECK_ERROR(mean(nothing({0, 3}, DType::f64), 0), "nothing to average");
  CHECK_ERROR(sum(nothing({2, 3}, DType::f64), 2), "sum: [2,3] has no axis 2");
  CHECK_ERROR(mean(nothing({2, 3}, DType::f64), -3), "mean: [2,3] has no axis -3");
  CHECK_ERROR(sum(Tensor::zeros({2, 3}, DType::i64)), "sum: wanted f32, f64 or bf16");
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
