#include "ops/conv1d/conv1d.h"

#include <cmath>

#include "autograd/tape.h"
#include "tests/check.h"
#include "tests/ops/cases.h"
#include "tests/roundings.h"
#include "tests/threads.h"

namespace weft {
namespace {

struct Convolution {
  Tensor y, dx, dweight, dbias;
};

// The sums of conv1d.h in f64, term by term.
Convolution by_definition(const Tensor& x, const Tensor& weight, const Tensor& bias,
                          const Tensor& dy, Activation activation = Activation::relu) {
  const i64 B = x.size(0), N = x.size(1), n = x.size(2), W = weight.size(0);
  const i64 m = weight.size(2);
  Convolution c{Tensor::zeros({B, N, m}, DType::f64), Tensor::zeros(x.shape(), DType::f64),
                Tensor::zeros(weight.shape(), DType::f64), Tensor::zeros({m}, DType::f64)};
  const auto X = x.view<double, 3>(), w = weight.view<double, 3>(), g = dy.view<double, 3>();
  for (i64 b = 0; b < B; ++b) {
    for (i64 t = 0; t < N; ++t) {
      for (i64 o = 0; o < m; ++o) {
        double sum = bias.view<double, 1>()(o);
        const auto each = [&](const auto& f) {
          for (i64 k = 0; k < W; ++k) {
            for (i64 i = 0; t - W + 1 + k >= 0 && i < n; ++i) f(t - W + 1 + k, k, i);
          }
        };
        each([&](auto s, auto k, auto i) { sum += X(b, s, i) * w(k, i, o); });
        if (activation == Activation::relu && sum <= 0) continue;
        c.y.view<double, 3>()(b, t, o) = sum;
        each([&](auto s, auto k, auto i) {
          c.dx.view<double, 3>()(b, s, i) += g(b, t, o) * w(k, i, o);
          c.dweight.view<double, 3>()(k, i, o) += g(b, t, o) * X(b, s, i);
        });
        c.dbias.view<double, 1>()(o) += g(b, t, o);
      }
    }
  }
  return c;
}

// The weight and the bias are of type `learnt`.
Convolution by_op(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& dy,
                  DType type, DType learnt, Activation activation = Activation::relu) {
  const auto leaf = [&](const Tensor& t, DType of) {
    return Variable::leaf(t.to(of).to(tested_device()));
  };
  const Variable in[] = {leaf(x, type), leaf(weight, learnt), leaf(bias, learnt)};
  Tape tape;
  const Variable y = causal_conv1d(in[0], in[1], in[2], activation);
  tape.backward(y, dy.to(type).to(tested_device()));
  const auto wide = [](const Tensor& t) { return t.to(Device{}).to(DType::f64); };
  return {wide(y.value()), wide(in[0].gradient()), wide(in[1].gradient()), wide(in[2].gradient())};
}

TEST_SUITE("ops") {

// Windows that are halved and others, sequences of one block and of several, of lengths that cannot
// be halved, and shorter than the window.
TEST_CASE("causal convolution is its definition") {
  const ThreadsOf one(1);
  for (const i64 window : {1, 2, 3, 4, 6, 8, 12}) {
    for (const Shape& shape :
         {Shape{2, 5, 3}, Shape{1, 128, 20}, Shape{40, 7, 3}, Shape{1, 131, 7}}) {
      CAPTURE(window);
      CAPTURE(shape);
      // Rounded to f32 once, so that both types see the same numbers.
      const auto normal = [](const Shape& s, std::uint64_t seed) {
        return random_normal(s, DType::f32, seed).to(DType::f64);
      };
      const Tensor x = normal(shape, 1), weight = normal({window, shape[2], 18}, 2);
      const Tensor bias = normal({18}, 3), dy = normal({shape[0], shape[1], 18}, 4);
      const Convolution wanted = by_definition(x, weight, bias, dy);
      for (const DType type : {DType::f64, DType::f32}) {
        const Convolution got = by_op(x, weight, bias, dy, type, type);
        const bool wide = type == DType::f64;
        const double forward = wide ? tolerance::forward_f64 : tolerance::forward_f32;
        const double backward = wide ? tolerance::backward_f64 : tolerance::backward_f32;
        CHECK(relative_error(got.y, wanted.y) <= forward);
        CHECK(relative_error(got.dx, wanted.dx) <= backward);
        CHECK(relative_error(got.dweight, wanted.dweight) <= backward);
        CHECK(relative_error(got.dbias, wanted.dbias) <= backward);
      }
    }
  }
}

TEST_CASE("causal convolution in bf16 is its definition, but for the roundings") {
  const ThreadsOf one(1);
  const auto narrow = [](const Shape& s, std::uint64_t seed) {
    return random_normal(s, DType::f32, seed).to(DType::bf16).to(DType::f64);
  };
  for (const i64 W : {1, 2, 5, 8}) {
    for (const Shape& shape : {Shape{2, 5, 3}, Shape{1, 128, 20}, Shape{3, 259, 7}}) {
      CAPTURE(W);
      CAPTURE(shape);
      const i64 n = shape[2], m = 18, positions = shape[0] * shape[1];
      const Tensor x = narrow(shape, 1), weight = narrow({W, n, m}, 2), bias = narrow({m}, 3);
      const Tensor dy = narrow({shape[0], shape[1], m}, 4);
      const Activation none = Activation::none;
      const Convolution wanted = by_definition(x, weight, bias, dy, none);
      const Convolution sizes =
          by_definition(magnitude(x), magnitude(weight), magnitude(bias), magnitude(dy), none);
      const Convolution got = by_op(x, weight, bias, dy, DType::bf16, DType::f32, none);
      CHECK(beyond_roundings(got.y, wanted.y, sizes.y, W * n + 1, true) == "");
      CHECK(beyond_roundings(got.dx, wanted.dx, sizes.dx, W * m, true) == "");
      CHECK(beyond_roundings(got.dweight, wanted.dweight, sizes.dweight, positions, false) == "");
      CHECK(beyond_roundings(got.dbias, wanted.dbias, sizes.dbias, positions, false) == "");

      const Convolution masked = by_definition(x, weight, bias, dy);
      const Convolution relu = by_op(x, weight, bias, dy, DType::bf16, DType::bf16);
      const double rounding = tolerance::half_unit_bf16 + tolerance::backward_f32;
      CHECK(relative_error(relu.y, masked.y) <= rounding);
      CHECK(relative_error(relu.dx, masked.dx) <= rounding);
      CHECK(relative_error(relu.dweight, masked.dweight) <= rounding);
      CHECK(relative_error(relu.dbias, masked.dbias) <= rounding);
    }
  }
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
