#include "ops/matmul/matmul.h"

#include <cmath>

#include "autograd/tape.h"
#include "runtime/matmul.h"
#include "tests/check.h"

namespace weft {
namespace {

TEST_SUITE("ops") {

TEST_CASE("the gradient of a shared right-hand side is the sum over the batch") {
  const Tensor a = random_normal({3, 4, 5}, DType::f64, 1),
               b = random_normal({5, 2}, DType::f64, 2);
  const auto f = [](std::span<const Variable> in) { return std::vector{matmul(in[0], in[1])}; };
  const Run shared = run(f, {a, b});
  const Run each = run(f, {a, b.expand({3, 5, 2}).clone()});
  CHECK(relative_error(shared.outputs[0], each.outputs[0]) <= tolerance::forward_f64);
  CHECK(relative_error(shared.gradients[0], each.gradients[0]) <= tolerance::backward_f64);
  const Tensor sum = Tensor::zeros({5, 2}, DType::f64);
  for (i64 batch = 0; batch < 3; ++batch) {
    for (i64 k = 0; k < 5; ++k) {
      for (i64 j = 0; j < 2; ++j) {
        sum.view<double, 2>()(k, j) += each.gradients[1].view<double, 3>()(batch, k, j);
      }
    }
  }
  CHECK(relative_error(shared.gradients[1], sum) <= tolerance::backward_f64);
}

TEST_CASE(
    "the gradient of a shared left-hand side, whichever way that lies, is the sum over the batch") {
  const Tensor a = random_normal({4, 5}, DType::f64, 1),
               b = random_normal({3, 5, 2}, DType::f64, 2);
  const auto f = [](std::span<const Variable> in) { return std::vector{matmul(in[0], in[1])}; };
  const Run each = run(f, {a.expand({3, 4, 5}).clone(), b});
  const Tensor sum = Tensor::zeros({4, 5}, DType::f64);
  for (i64 batch = 0; batch < 3; ++batch) {
    for (i64 i = 0; i < 4; ++i) {
      for (i64 k = 0; k < 5; ++k) {
        sum.view<double, 2>()(i, k) += each.gradients[0].view<double, 3>()(batch, i, k);
      }
    }
  }
  for (const Tensor& placed : {a, a.transpose(0, 1).clone().transpose(0, 1)}) {
    const Run shared = run(f, {placed, b});
    CHECK(relative_error(shared.outputs[0], each.outputs[0]) <= tolerance::forward_f64);
    CHECK(relative_error(shared.gradients[0], sum) <= tolerance::backward_f64);
    CHECK(relative_error(shared.gradients[1], each.gradients[1]) <= tolerance::backward_f64);
  }
  const Run none = run(f, {a, Tensor::empty({0, 5, 2}, DType::f64)});
  CHECK(same_bits(none.gradients[0], Tensor::zeros({4, 5}, DType::f64)));
}

TEST_CASE("a matrix times itself, and times its transpose") {
  const Tensor a = random_normal({4, 4}, DType::f64, 1);
  CHECK_GRADIENTS([](std::span<const Variable> in) { return std::vector{matmul(in[0], in[0])}; },
                  std::vector{a});
}

TEST_CASE("TF32: operands of eleven bits, if it is set, on CUDA devices alone") {
  const Tensor a = random_normal({3, 128, 128}, DType::f32, 1),
               b = random_normal({128, 128}, DType::f32, 2);
  const Tensor exact = matmul(a.to(DType::f64), b.to(DType::f64));
  const auto product = [&](bool tf32) {
    CHECK_FALSE(products_in_tf32());
    set_products_in_tf32(tf32);
    const Tensor c = matmul(a.to(tested_device()), b.to(tested_device())).to(Device{});
    set_products_in_tf32(false);
    return c;
  };
  const Tensor f32 = product(false), tf32 = product(true);
  CHECK(relative_error(f32, exact) <= tolerance::forward_f32);
  if (tested_device() == Device{}) {
    CHECK(same_bits(f32, tf32));
    return;
  }
  // Each operand is within 2⁻¹¹ of itself; the errors of a sum are independent.
  CHECK(relative_error(tf32, exact) <= 2 * std::ldexp(1, -11));
  CHECK(relative_error(tf32, exact) >= 10 * tolerance::forward_f32);
}

TEST_CASE("products of nothing have zero gradients") {
  const auto f = [](std::span<const Variable> in) { return std::vector{matmul(in[0], in[1])}; };
  const Run none =
      run(f, {Tensor::empty({2, 0, 3}, DType::f64), random_normal({3, 4}, DType::f64, 1)});
  CHECK(none.gradients[0].shape() == Shape{2, 0, 3});
  CHECK(same_bits(none.gradients[1], Tensor::zeros({3, 4}, DType::f64)));
  const Run flat =
      run(f, {random_normal({2, 3, 0}, DType::f64, 1), Tensor::empty({0, 4}, DType::f64)});
  CHECK(flat.gradients[0].shape() == Shape{2, 3, 0});
  CHECK(flat.gradients[1].shape() == Shape{0, 4});
}

TEST_CASE("matmul refuses what does not fit") {
  const Variable a = random_normal({2, 3}, DType::f32, 1);
  CHECK_ERROR(matmul(a, Variable(random_normal({2, 3}, DType::f32, 1))),
              "matmul: the last axis of [2,3]");
  CHECK_ERROR(matmul(a, Variable(random_normal({3}, DType::f32, 1))), "matmul: wanted matrices");
  CHECK_ERROR(matmul(Variable(Tensor::zeros({2, 2}, DType::i64)), a),
              "matmul: wanted f32, f64 or bf16");
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
