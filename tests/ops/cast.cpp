#include "ops/cast/cast.h"

#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "ops/pointwise/pointwise.h"
#include "tests/check.h"

namespace weft {
namespace {

Tensor numbers(const std::vector<double>& values, DType type) {
  const Shape shape{static_cast<i64>(values.size())};
  return Tensor::from(values, shape).to(type).to(tested_device());
}
std::vector<double> values_of(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }

TEST_SUITE("ops") {

TEST_CASE("cast rounds to the nearest number of the type, ties to even") {
  const double f32_unit = std::ldexp(1, -23), bf16_unit = std::ldexp(1, -7);
  const Variable x = numbers({1 + 0.49 * f32_unit, 1 + 0.51 * f32_unit, 1 + 0.5 * f32_unit,
                              1 + 1.5 * f32_unit, -3, 1e300, -infinite},
                             DType::f64);
  CHECK(values_of(cast(x, DType::f32).value()) ==
        std::vector<double>{1, 1 + f32_unit, 1, 1 + 2 * f32_unit, -3, infinite, -infinite});
  const Variable y = numbers({1 + 0.49 * bf16_unit, 1 + 0.51 * bf16_unit, 1 + 0.5 * bf16_unit,
                              1 + 1.5 * bf16_unit, -3, 3.4e38, -infinite},
                             DType::f32);
  const Variable rounded = cast(y, DType::bf16);
  CHECK(rounded.value().dtype() == DType::bf16);
  CHECK(values_of(rounded.value()) ==
        std::vector<double>{1, 1 + bf16_unit, 1, 1 + 2 * bf16_unit, -3, infinite, -infinite});
}

TEST_CASE("cast: every pair of types; the gradient comes back in the type of the input") {
  const std::vector<double> exact{-2.5, 0, 1, 96};  // numbers that all three types hold
  for (const DType from : {DType::f32, DType::f64, DType::bf16}) {
    for (const DType to : {DType::f32, DType::f64, DType::bf16}) {
      CAPTURE(fmt::format("{} to {}", name_of(from), name_of(to)));
      for (const bool apart : {false, true}) {
        const Tensor value = numbers(exact, from);
        const Variable x = Variable::leaf(apart ? scattered(value) : value);
        Tape tape;
        const Variable y = cast(x, to);
        CHECK(y.value().dtype() == to);
        CHECK(values_of(y.value()) == exact);
        tape.backward(y, numbers({5, -6, 0.5, 3}, to));
        CHECK(x.gradient().dtype() == from);
        CHECK(values_of(x.gradient()) == std::vector<double>{5, -6, 0.5, 3});
      }
    }
  }
}

TEST_CASE("cast: the gradient is rounded to the type of the input") {
  const Variable x = Variable::leaf(numbers({1}, DType::f32));
  Tape tape;
  tape.backward(cast(x, DType::f64), numbers({1 + std::ldexp(1, -40)}, DType::f64));
  CHECK(values_of(x.gradient()) == std::vector<double>{1});
}

TEST_CASE("cast: what was cast to bf16 may be used more than once") {
  const Variable x = Variable::leaf(numbers({1, 2}, DType::f32));
  Tape tape;
  const Variable narrow = cast(x, DType::bf16);
  const Variable y = add(cast(narrow, DType::f32), scale(cast(narrow, DType::f32), 2));
  tape.backward(y, numbers({1, -4}, DType::f32));
  CHECK(values_of(x.gradient()) == std::vector<double>{3, -12});
}

TEST_CASE("cast hands NaN on, and leaves what is of the type as it is") {
  for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
    const Variable x = numbers({std::nan("")}, DType::f64);
    CHECK(std::isnan(values_of(cast(x, type).value())[0]));
    const Variable same = numbers({1, 2}, type);
    CHECK(cast(same, type).value().same_storage(same.value()));
  }
  CHECK(cast(Tensor::zeros({0, 3}, DType::f64, tested_device()), DType::bf16).shape() ==
        Shape{0, 3});
}

TEST_CASE("cast says which types it takes") {
  CHECK_ERROR(cast(Tensor::zeros({2}, DType::i64), DType::f32),
              "cast: wanted f32, f64 or bf16 on both sides, got i64 [2] to f32");
  CHECK_ERROR(cast(Tensor::zeros({2}, DType::f32), DType::i32), "got f32 [2] to i32");
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
