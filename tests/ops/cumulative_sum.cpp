#include "ops/cumulative_sum/cumulative_sum.h"

#include <cmath>

#include "tests/check.h"

namespace weft {
namespace {

// Σ over the positions up to each, or from each on, index by index.
Tensor plain_sums(const Tensor& x, int axis, bool reverse) {
  i64 outer = 1, n = x.size(axis), inner = 1;
  for (int other = 0; other < x.rank(); ++other) {
    if (other != axis) (other < axis ? outer : inner) *= x.size(other);
  }
  const std::vector<double> from = x.to(DType::f64).to_vector<double>();
  std::vector<double> to(from.size());
  for (i64 o = 0; o < outer; ++o) {
    for (i64 j = 0; j < inner; ++j) {
      for (i64 i = 0; i < n; ++i) {
        long double sum = 0;
        for (i64 l = reverse ? i : 0; l < (reverse ? n : i + 1); ++l) {
          sum += from[static_cast<std::size_t>((o * n + l) * inner + j)];
        }
        to[static_cast<std::size_t>((o * n + i) * inner + j)] = static_cast<double>(sum);
      }
    }
  }
  return Tensor::from(to, x.shape());
}

TEST_SUITE("ops") {

TEST_CASE("cumulative sums along any axis, either way, agree with the plain loop") {
  for (const Shape& shape : {Shape{1}, Shape{33}, Shape{3, 5, 7}, Shape{2, 100, 1}, Shape{2, 9, 70},
                             Shape{70, 3}, Shape{2, 40, 300}, Shape{2, 2, 3, 2, 2}}) {
    const Tensor x = random_normal(shape, DType::f64, 1).to(tested_device());
    for (int axis = 0; axis < shape.rank(); ++axis) {
      for (const bool reverse : {false, true}) {
        CAPTURE(fmt::format("{} axis {} {}", shape, axis, reverse));
        const Tensor wanted = plain_sums(x, axis, reverse);
        for (const Tensor& lying : {x, scattered(x)}) {
          CHECK(relative_error(cumulative_sum(lying, axis, reverse).value(), wanted) <=
                tolerance::forward_f64);
          CHECK(same_bits(cumulative_sum(lying, axis - shape.rank(), reverse).value(),
                          cumulative_sum(lying, axis, reverse).value()));
        }
      }
    }
  }
}

// 0.1f repeatedly: accumulated in f32, a long sum drifts by per cents.
TEST_CASE("cumulative sums of f32 are gathered in f64") {
  const i64 n = 300000;
  const Tensor x = Tensor::full({n}, double(0.1f), DType::f32, tested_device());
  const std::vector<float> sums = cumulative_sum(x, 0).value().to_vector<float>();
  CHECK(sums.back() == static_cast<float>(double(0.1f) * double(n)));
}

TEST_CASE("a NaN reaches the cumulative sums that contain it, and no others") {
  for (const Shape& shape : {Shape{1, 70, 1}, Shape{1, 70, 40}}) {
    const Tensor x = random_normal(shape, DType::f64, 1);
    x.slice(1, 35, 36).fill(std::nan(""));
    for (const bool reverse : {false, true}) {
      const Tensor y = cumulative_sum(x.to(tested_device()), 1, reverse).value().to(Device{});
      for (i64 i = 0; i < 70; ++i) {
        const bool holds = reverse ? i <= 35 : i >= 35;
        CHECK(std::isnan(y.view<double, 3>()(0, i, 0)) == holds);
      }
    }
  }
}

TEST_CASE("cumulative sums of nothing, and of what has no such axis") {
  const auto nothing = [](const Shape& shape) {
    return Tensor::zeros(shape, DType::f32, tested_device());
  };
  for (const int axis : {0, 1}) {
    CHECK(cumulative_sum(nothing({0, 3}), axis).shape() == Shape{0, 3});
    CHECK(cumulative_sum(nothing({3, 0}), axis, true).shape() == Shape{3, 0});
  }
  CHECK_ERROR(cumulative_sum(nothing({2, 3}), 2), "cumulative_sum: [2,3] has no axis 2");
  CHECK_ERROR(cumulative_sum(nothing({}), 0), "cumulative_sum: [] has no axis 0");
  CHECK_ERROR(cumulative_sum(Tensor::zeros({2}, DType::i64), 0),
              "cumulative_sum: wanted f32, f64 or bf16 elements, got i64 [2]");
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
