// Linear maps and softmax as loops, for tests that implement a block's equations; and a check of
// its gradients against them.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "runtime/arithmetic.h"
#include "tests/attention/run_attention.h"

namespace weft::loops {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// The row of numbers that x holds.
inline Row row_of(const Tensor& x) { return x.packed().to_vector<double>(); }
// x [rows, columns]
inline Rows rows_of(const Tensor& x) {
  Rows rows;
  for (i64 i = 0; i < x.size(0); ++i) rows.push_back(row_of(x.slice(0, i, i + 1)));
  return rows;
}
// Item b of x, without its axis.
inline Tensor item(const Tensor& x, i64 b) {
  Shape shape;
  for (int axis = 1; axis < x.rank(); ++axis) shape.push_back(x.size(axis));
  return x.slice(0, b, b + 1).packed().reshape(shape);
}

// x W + b, W [in, out]
inline Row affine(const Row& x, const Rows& weight, const Row& bias) {
  Row y = bias;
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < y.size(); ++j) y[j] += x[i] * weight[i][j];
  }
  return y;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

inline Row softmax(Row z) {
  double sum = 0;
  for (double& value : z) sum += value = std::exp(value);
  for (double& value : z) value /= sum;
  return z;
}

inline Row normalised(const Row& x, const Row& gain, const Row& bias, double epsilon) {
  const double n = double(x.size());
  double mean = 0, square = 0;
  for (const double value : x) mean += value / n;
  for (const double value : x) square += (value - mean) * (value - mean) / n;
  Row y = x;
  for (std::size_t e = 0; e < x.size(); ++e) {
    y[e] = gain[e] * (x[e] - mean) / std::sqrt(square + epsilon) + bias[e];
  }
  return y;
}

// The attended values [A] of a query [A] over keys [k][A], head by head: heads are ranges.
inline Row attended(const Row& q, const Rows& keys, const Rows& values, std::size_t heads,
                    double temperature) {
  const std::size_t width = q.size() / heads;
  Row out(q.size(), 0.0);
  for (std::size_t h = 0; h < heads && !keys.empty(); ++h) {
    Row z;
    for (const Row& key : keys) {
      double product = 0;
      for (std::size_t e = h * width; e < (h + 1) * width; ++e) product += q[e] * key[e];
      z.push_back(temperature * product);
    }
    const Row a = softmax(z);
    for (std::size_t j = 0; j < a.size(); ++j) {
      for (std::size_t e = h * width; e < (h + 1) * width; ++e) out[e] += a[j] * values[j][e];
    }
  }
  return out;
}

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// Checks that a mechanism's output is that of `function`, and its gradients the derivatives of
// that: by central differences along a random direction of each input, for a random cotangent.
inline void check(const std::string& spec, const std::vector<Tensor>& inputs,
                  const AttentionCall& call, const Function& function) {
  const Tensor wanted = function(inputs), dout = normal(wanted.shape(), 5);
  const Run all = run_for(dout, mechanism_of(spec, call), inputs);
  check_close(all.outputs[0], wanted);
  const auto along = [](const Tensor& a, const Tensor& b) {
    const Row x = row_of(a), y = row_of(b);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
    return sum;
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CAPTURE(i);
    constexpr double step = 1e-5;
    const Tensor direction = normal(inputs[i].shape(), 50 + i);
    const auto moved = [&](double by) {
      std::vector<Tensor> other = inputs;
      Row x = row_of(inputs[i]);
      const Row u = row_of(direction);
      for (std::size_t e = 0; e < x.size(); ++e) x[e] += by * u[e];
      other[i] = Tensor::from(x, inputs[i].shape());
      return along(function(other), dout);
    };
    const double slope = (moved(step) - moved(-step)) / (2 * step);
    const Tensor& gradient = all.gradients[i];
    const double got = gradient.defined() ? along(gradient, direction) : 0;
    const double size = std::max({std::abs(slope), std::abs(got), 1.0});
    CHECK(std::abs(got - slope) <= 1e-7 * size);
  }
}

// All inputs of a specification in f64, with their initial sizes.
inline std::vector<Tensor> inputs_of(const std::string& spec, const AttentionSizes& sizes,
                                     std::uint64_t seed = 100) {
  std::vector<Tensor> inputs;
  for (const AttentionInput& input : attention_inputs(AttentionSpec(spec), sizes)) {
    const bool starts = input.weight.kind == Initializer::uniform;
    const double size = starts ? input.weight.scale : 1;
    Row x = row_of(normal(input.shape, seed + inputs.size()));
    for (double& value : x) value *= size;
    inputs.push_back(Tensor::from(x, input.shape));
  }
  return inputs;
}

}  // namespace weft::loops
