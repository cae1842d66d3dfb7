#include "ops/rotary/rotary.h"

#include <cmath>

#include "tests/check.h"
#include "tests/cuda_there.h"
#include "tests/ops/cases.h"

namespace weft {
namespace {

Tensor turned(const Tensor& x, i64 first, double base = 10000) {
  return rotary(Variable(x.to(tested_device())), first, base).value().to(Device{});
}

double dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

TEST_SUITE("ops") {

TEST_CASE("rotary: neighbouring features are turned as the definition says") {
  for (const auto& [shape, first] : {std::pair{Shape{2, 7, 3, 8}, 0}, {Shape{1, 5, 2, 2}, 11},
                                     {Shape{3, 1, 1, 64}, 100'000}}) {
    const Tensor x = random_normal(shape, DType::f64, 1), y = turned(x, first, 500);
    const View<const double, 4> from = x.view<double, 4>(), to = y.view<double, 4>();
    const i64 E = shape[3];
    double worst = 0;
    for (i64 b = 0; b < shape[0]; ++b) {
      for (i64 n = 0; n < shape[1]; ++n) {
        for (i64 h = 0; h < shape[2]; ++h) {
          for (i64 i = 0; i < E / 2; ++i) {
            const double theta = std::pow(500, -2.0 * double(i) / double(E));
            const double angle = double(first + n) * theta;
            const double u = from(b, n, h, 2 * i), v = from(b, n, h, 2 * i + 1);
            const double one = u * std::cos(angle) - v * std::sin(angle);
            const double two = u * std::sin(angle) + v * std::cos(angle);
            worst = worse(worst, std::abs(to(b, n, h, 2 * i) - one));
            worst = worse(worst, std::abs(to(b, n, h, 2 * i + 1) - two));
          }
        }
      }
    }
    CHECK(worst < 1e-10);
  }
}

TEST_CASE("rotary: position 0 is the identity, and lengths stay") {
  const Tensor x = random_normal({2, 1, 3, 6}, DType::f64, 1);
  CHECK(same_bits(turned(x, 0), x));
  const Tensor y = turned(x, 123);
  CHECK_FALSE(same_bits(y, x));
  CHECK(dot(y, y) == doctest::Approx(dot(x, x)).epsilon(1e-13));
}

TEST_CASE("rotary: scores depend on how far apart query and key are, and on nothing else") {
  const Tensor q = random_normal({1, 1, 1, 16}, DType::f64, 1);
  const Tensor k = random_normal({1, 1, 1, 16}, DType::f64, 2);
  const auto score = [&](i64 i, i64 j) { return dot(turned(q, i), turned(k, j)); };
  for (const i64 apart : {0, 1, 5, 77}) {
    const double wanted = score(apart, 0);
    for (const i64 j : {1, 2, 30, 1000, 99'999}) {
      CHECK(score(j + apart, j) == doctest::Approx(wanted).epsilon(1e-9));
    }
  }
  CHECK(std::abs(score(1, 0) - score(0, 0)) > 1e-3);
  CHECK(std::abs(score(1, 0) - score(0, 1)) > 1e-3);
}

TEST_CASE("rotary: positions handed in parts give what they give together") {
  const Tensor x = random_normal({2, 9, 3, 4}, DType::f32, 1), whole = turned(x, 20);
  for (i64 n = 0; n < 9; ++n) {
    CHECK(same_bits(turned(x.slice(1, n, n + 1), 20 + n), whole.slice(1, n, n + 1)));
  }
}

TEST_CASE("rotary: in f32 far positions are as exact as near ones") {
  const Tensor x = random_normal({1, 8, 2, 32}, DType::f32, 1);
  for (const i64 first : {0, 1'000'000}) {
    CHECK(relative_error(turned(x, first), turned(x.to(DType::f64), first)) < 1e-6);
  }
}

TEST_CASE("rotary: what it cannot turn") {
  const auto turn = [](const Shape& shape, i64 first, double base) {
    turned(random_normal(shape, DType::f32, 1), first, base);
  };
  CHECK_ERROR(turn({1, 2, 3, 5}, 0, 10000), "with an even E, got [1,2,3,5]");
  CHECK_ERROR(turn({2, 3, 4}, 0, 10000), "wanted [B, N, H, E]");
  CHECK_ERROR(turn({1, 2, 3, 4}, -1, 10000), "positions begin at 0, got -1");
  CHECK_ERROR(turn({1, 2, 3, 4}, 0, 1), "the base is above 1");
}

}  // TEST_SUITE

}  // namespace
}  // namespace weft
