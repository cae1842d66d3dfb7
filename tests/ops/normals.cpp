#include "ops/normals/normals.h"

#include <cmath>

#include "runtime/tensor.h"
#include "tests/check.h"

namespace weft {
namespace {

Tensor drawn(const RandomKey& key, i64 each, i64 count, DType type) {
  const Tensor x = Tensor::empty({count}, type, tested_device());
  draw_normals(key, each, x);
  return x.to(Device{});
}

TEST_SUITE("ops") {

TEST_CASE("normals: two uniform words give each, those of its place in its block") {
  const RandomKey key{3, 5, 7};
  for (const i64 each : {1, 2}) {
    const Tensor x = drawn(key, each, 31, DType::f64);
    for (i64 i = 0; i < 31; ++i) {
      const Philox words = key.words(std::uint64_t(i / each));
      const auto first = std::size_t(2 * (i % each));
      const double u = (words.word[first] + 0.5) * 0x1p-32, turn = words.word[first + 1] * 0x1p-32;
      const double wanted = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::acos(-1.0) * turn);
      CHECK(x.data<double>()[i] == doctest::Approx(wanted).epsilon(1e-12));
    }
    const Tensor narrow = drawn(key, each, 31, DType::f32);
    CHECK(same_bits(narrow, x.to(DType::f32)));
  }
}

TEST_CASE("normals: a draw may begin at any number") {
  for (const i64 each : {1, 2}) {
    const Tensor all = drawn({3, 5, 7}, each, 31, DType::f64);
    const Tensor rest = Tensor::empty({20}, DType::f64, tested_device());
    draw_normals({3, 5, 7}, each, rest, 11);
    CHECK(same_bits(rest.to(Device{}), all.slice(0, 11, 31).clone()));
  }
}

TEST_CASE("normals: mean, variance and fourth moment are those of the standard normal") {
  const i64 count = 40000;
  const Tensor x = drawn({1, 2, 3}, 2, count, DType::f64);
  double moments[5] = {};
  for (i64 i = 0; i < count; ++i) {
    for (int power = 1; power <= 4; ++power) moments[power] += std::pow(x.data<double>()[i], power);
  }
  // Five standard errors: of x 1/√n, of x² √2/√n, of x⁴ √96/√n.
  const double error = 5 / std::sqrt(double(count));
  CHECK(std::abs(moments[1] / double(count)) < error);
  CHECK(std::abs(moments[2] / double(count) - 1) < error * std::sqrt(2.0));
  CHECK(std::abs(moments[4] / double(count) - 3) < error * std::sqrt(96.0));
}

}  // TEST_SUITE("ops")

}  // namespace
}  // namespace weft
