#include "autograd/gradcheck.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/tape.h"
#include "runtime/random.h"

namespace weft {
namespace {

constexpr double epsilon = std::numeric_limits<double>::epsilon();

template <class F>
Tensor sampled(const Shape& shape, DType dtype, std::uint64_t seed, const F& sample) {
  const RandomKey key{seed, 0, 0};
  std::vector<double> values(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = sample(key.words(i));
  return Tensor::from(values, shape).to(dtype);
}

struct InnerProduct {
  double value = 0, magnitude = 0;  // Σ f w, Σ |f w|
};

InnerProduct inner_product(std::span<const Variable> outputs, std::span<const Tensor> weights) {
  InnerProduct sum;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::vector<double> values = outputs[i].value().to(DType::f64).to_vector<double>();
    const std::vector<double> factors = weights[i].to(DType::f64).to_vector<double>();
    for (std::size_t j = 0; j < values.size(); ++j) {
      sum.value += values[j] * factors[j];
      sum.magnitude += std::abs(values[j] * factors[j]);
    }
  }
  return sum;
}

}  // namespace

Tensor random_normal(const Shape& shape, DType dtype, std::uint64_t seed) {
  return sampled(shape, dtype, seed, [](Philox w) { return normal(w.word[0], w.word[1]); });
}

Tensor random_uniform(const Shape& shape, DType dtype, std::uint64_t seed, double low,
                      double high) {
  return sampled(shape, dtype, seed, [=](Philox w) {
    return low + (high - low) * (w.word[0] + w.word[1] * 0x1p-32) * 0x1p-32;
  });
}

GradientError gradcheck(const Differentiable& f, std::span<const Tensor> inputs, std::uint64_t seed,
                        double step, i64 elements) {
  std::vector<Variable> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.dtype() == DType::f64 ? Variable::leaf(input) : Variable(input));
  }
  std::vector<Tensor> weights;
  {
    Tape tape;
    const std::vector<Variable> outputs = f(leaves);
    for (const Variable& output : outputs) {
      const Tensor& value = output.value();
      weights.push_back(
          random_normal(value.shape(), value.dtype(), seed++).to(value.device()));
    }
    tape.backward(outputs, weights);
  }
  const Tape::Pause pause;
  GradientError error;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!leaves[i].wants_gradient()) continue;
    const i64 count = inputs[i].count();
    const std::vector<double> values = inputs[i].to_vector<double>();
    std::vector<double> analytic(values.size(), 0);
    const Tensor gradient = leaves[i].gradient();
    if (gradient.defined()) analytic = gradient.to_vector<double>();
    double scale = 0;
    for (const double g : analytic) {
      require(std::isfinite(g), "gradcheck: the gradient of input {} is not finite", i);
      scale = std::max(scale, std::abs(g));
    }
    struct Difference {
      i64 element;
      double numeric, rounding;
    };
    std::vector<Difference> differences;
    i64 stride = std::max<i64>(1, (count + elements - 1) / elements);
    // Without a common factor with an axis, so that its elements take turns.
    while (count > 0 && std::gcd(stride, count) > 1) ++stride;
    for (i64 j = 0; j < count; j += stride) {
      const auto loss_at = [&](double shift) {
        std::vector<double> moved = values;
        moved[static_cast<std::size_t>(j)] += shift;
        std::vector<Variable> points(leaves);
        points[i] = Variable(Tensor::from(moved, inputs[i].shape()).to(inputs[i].device()));
        return inner_product(f(points), weights);
      };
      const InnerProduct above = loss_at(step), below = loss_at(-step);
      const double numeric = (above.value - below.value) / (2 * step);
      require(std::isfinite(numeric),
              "gradcheck: the difference at input {} element {} is not finite", i, j);
      differences.push_back(
          {j, numeric, epsilon * (above.magnitude + below.magnitude) / (2 * step)});
      scale = std::max(scale, std::abs(numeric));
    }
    for (const Difference& difference : differences) {
      const double expected = analytic[static_cast<std::size_t>(difference.element)];
      const double excess = std::abs(expected - difference.numeric) - difference.rounding;
      const double relative = std::max(excess, 0.0) / std::max(scale, 1e-3);
      if (!(relative <= error.worst)) {
        error.worst = relative;
        error.where = fmt::format("input {} {} element {}: backward {:.9g}, differences {:.9g}", i,
                                  inputs[i].shape(), difference.element, expected,
                                  difference.numeric);
      }
    }
  }
  return error;
}

}  // namespace weft
