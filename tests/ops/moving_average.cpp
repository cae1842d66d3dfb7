#include "ops/moving_average/moving_average.h"

#include <cmath>
#include <limits>

#include "tests/check.h"

namespace weft {
namespace {

struct Call {
  i64 B, N, d, n, D, truncation;
  bool cut;  // by lengths
};

constexpr Call calls[] = {{2, 9, 3, 4, 1, 0, false},    {3, 70, 5, 3, 2, 0, true},
                          {1, 130, 9, 16, 2, 7, false}, {4, 129, 33, 5, 2, 100, true},
                          {2, 65, 1, 1, 1, 64, true},   {1, 1, 2, 6, 2, 1, false},
                          {2, 40, 2, 2, 1, 500, false}};

struct AverageInputs {
  Tensor x, decay, weight, lengths;

  explicit AverageInputs(const Call& c)
      : x(random_normal({c.B, c.N, c.d}, DType::f64, 1)),
        decay(random_uniform({c.D, c.d, c.n}, DType::f64, 2, 0.05, 0.98)),
        weight(random_normal({c.D, c.d, c.n}, DType::f64, 3)) {
    std::vector<i64> some;
    for (i64 b = 0; b < c.B; ++b) some.push_back(c.N - b * c.N / std::max<i64>(c.B - 1, 1));
    if (c.cut) lengths = Tensor::from(some, {c.B});  // the last is 0
  }
  i64 length(i64 b) const { return lengths.defined() ? lengths.data<i64>()[b] : x.size(1); }
  Differentiable f(i64 truncation) const {
    return [=, *this](std::span<const Variable> in) {
      const Tensor there = lengths.defined() ? lengths.to(in[0].value().device()) : lengths;
      return std::vector{moving_average(in[0], in[1], in[2], there, truncation)};
    };
  }
  std::vector<Tensor> list() const { return {x, decay, weight}; }
};

// Lag by lag: the average, and for the cotangent dy the gradients of x, decay and weight.
Run by_lags(const Call& c, const AverageInputs& in, const Tensor& cotangent) {
  Run sums{{Tensor::zeros(in.x.shape(), DType::f64)}, {}};
  for (const Tensor& x : in.list()) sums.gradients.push_back(Tensor::zeros(x.shape(), DType::f64));
  const auto x = in.x.view<double, 3>(), q = in.decay.view<double, 3>();
  const auto w = in.weight.view<double, 3>(), dy = cotangent.view<double, 3>();
  const auto y = sums.outputs[0].view<double, 3>(), dx = sums.gradients[0].view<double, 3>();
  const auto dq = sums.gradients[1].view<double, 3>(), dw = sums.gradients[2].view<double, 3>();
  for (i64 b = 0; b < c.B; ++b) {
    for (i64 i = 0; i < in.length(b); ++i) {
      for (i64 j = 0; j < in.length(b); ++j) {
        const i64 lag = std::abs(i - j);
        if (c.truncation > 0 && lag >= c.truncation) continue;
        for (i64 way = 0; way < c.D; ++way) {
          if (way == 0 ? j > i : j < i) continue;
          for (i64 e = 0; e < c.d; ++e) {
            for (i64 k = 0; k < c.n; ++k) {
              const double power = std::pow(q(way, e, k), double(lag));
              y(b, i, e) += w(way, e, k) * power * x(b, j, e);
              dx(b, j, e) += w(way, e, k) * power * dy(b, i, e);
              dw(way, e, k) += power * x(b, j, e) * dy(b, i, e);
              dq(way, e, k) +=
                  double(lag) * power / q(way, e, k) * w(way, e, k) * x(b, j, e) * dy(b, i, e);
            }
          }
        }
      }
    }
  }
  return sums;
}

TEST_SUITE("ops") {

TEST_CASE("moving average: it is the sum over lags, and so are its gradients") {
  for (const Call& c : calls) {
    CAPTURE(c.N);
    CAPTURE(c.truncation);
    const AverageInputs in(c);
    const Run got = run(in.f(c.truncation), in.list());
    const Tensor dy =
        random_uniform(in.x.shape(), DType::f32, 17, -1, 1).to(DType::f64);  // run()'s
    const Run wanted = by_lags(c, in, dy);
    CHECK(relative_error(got.outputs[0], wanted.outputs[0]) <= tolerance::forward_f64);
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(i);
      CHECK(relative_error(got.gradients[i], wanted.gradients[i]) <= tolerance::backward_f64);
    }
  }
}

TEST_CASE("moving average: what stands past the lengths is never read") {
  const AverageInputs in({3, 70, 5, 3, 2, 6, true});
  AverageInputs garbled = in;
  garbled.x = in.x.clone();
  for (i64 b = 0; b < 3; ++b) {
    garbled.x.slice(0, b, b + 1)
        .slice(1, in.length(b), 70)
        .fill(std::numeric_limits<double>::quiet_NaN());
  }
  check_same_bits(run(garbled.f(6), garbled.list()), run(in.f(6), in.list()));
}

TEST_CASE("moving average: NaN goes on to every position that it reaches") {
  const AverageInputs in({1, 9, 2, 3, 1, 0, false});
  const Tensor x = in.x.clone();
  x.slice(1, 4, 5).fill(std::numeric_limits<double>::quiet_NaN());
  const Tensor y = run(in.f(0), {x, in.decay, in.weight}).outputs[0];
  for (i64 i = 0; i < 9; ++i) CHECK(std::isnan(y.view<double, 3>()(0, i, 1)) == (i >= 4));
}

TEST_CASE("moving average: step by step it is the average of the whole") {
  for (const i64 truncation : {0, 3, 50}) {
    CAPTURE(truncation);
    const AverageInputs in({2, 140, 11, 6, 1, truncation, false});
    const Tensor wanted = run(in.f(truncation), in.list()).outputs[0];
    const std::vector<Tensor> there = on_device(in.list());
    const Tensor state = Tensor::zeros({2, 11, 6}, DType::f64, tested_device());
    const MovingAverage op{{}, truncation};
    for (i64 begin = 0, end = 0; begin < 140; begin = end) {
      end = begin == 0 ? 90 : begin + 1;
      const i64 earlier = std::min(begin, truncation);
      const Tensor got =
          op.step(there[0].slice(1, begin - earlier, end), earlier, there[1], there[2], state);
      CHECK(relative_error(got.to(Device{}), wanted.slice(1, begin, end)) <=
            tolerance::forward_f64);
    }
  }
}

TEST_CASE("moving average: of no positions, and of no items") {
  for (const Shape& shape : {Shape{2, 0, 3}, Shape{0, 4, 3}}) {
    const AverageInputs in({1, 1, 3, 2, 2, 0, false});
    const Run empty = run(in.f(0), {Tensor::zeros(shape, DType::f64), in.decay, in.weight});
    CHECK(empty.outputs[0].shape() == shape);
    for (const double x : empty.gradients[1].to_vector<double>()) CHECK(x == 0);
  }
}

TEST_CASE("moving average: what does not fit") {
  const auto f = [](const Shape& x, const Shape& decay, const Shape& weight, i64 truncation = 0) {
    return moving_average(Tensor::zeros(x, DType::f32), Tensor::zeros(decay, DType::f32),
                          Tensor::zeros(weight, DType::f32), {}, truncation);
  };
  CHECK_ERROR(f({2, 5, 3}, {1, 4, 2}, {1, 4, 2}), "moving_average: wanted x [B, N, d]");
  CHECK_ERROR(f({2, 5, 3}, {3, 3, 2}, {3, 3, 2}), "with D = 1 or 2; got [2,5,3], [3,3,2]");
  CHECK_ERROR(f({2, 5, 3}, {1, 3, 2}, {1, 3, 4}), "[1,3,4]");
  CHECK_ERROR(f({2, 5, 3}, {1, 3, 2}, {1, 3, 2}, -1), "a truncation of 0 or more lags, got -1");
  CHECK_ERROR(
      moving_average(Tensor::zeros({1, 2, 3}, DType::f64), Tensor::zeros({1, 3, 2}, DType::f32),
                     Tensor::zeros({1, 3, 2}, DType::f32)),
      "moving_average: x is f64, the decay f32");
}

}  // TEST_SUITE("ops")

}  // namespace
}  // namespace weft
