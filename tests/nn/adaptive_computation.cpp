// ACT against the recurrence and the gradient of its definition, token by token in scalars.
#include "ops/adaptive_computation/adaptive_computation.h"

#include <cmath>

#include "autograd/gradcheck.h"
#include "autograd/tape.h"
#include "tests/nn/checks.h"

using namespace weft;

namespace {

constexpr i64 batch = 2, length = 9, width = 5, depth = 6;
constexpr std::size_t tokens = batch * length;

struct Case {
  std::vector<Tensor> states;  // [B, N, d] × L
  Tensor weight, bias;
  Tensor daccumulated;
  double dponder = 0;
};

Case make_case(double bias) {
  Case c;
  const auto drawn = [](const Shape& shape, std::uint64_t seed) {
    return random_normal(shape, DType::f64, seed).to(tested_device());
  };
  for (std::uint64_t t = 0; t < depth; ++t) {
    c.states.push_back(drawn({batch, length, width}, 20 + t));
  }
  c.weight = drawn({width, 1}, 30);
  c.bias = Tensor::full({1}, bias, DType::f64, tested_device());
  c.daccumulated = drawn({batch, length, width}, 31);
  c.dponder = 1.7;
  return c;
}

struct Expected {
  std::vector<double> accumulated = std::vector<double>(tokens * width);
  double ponder = 0;
  std::vector<std::vector<double>> dstates{depth, std::vector<double>(tokens* width)};
  std::vector<double> dweight = std::vector<double>(width);
  double dbias = 0;
  std::size_t halted_at_once = 0, halted_later = 0, never_halted = 0;
};

Expected by_definition(const Case& c) {
  Expected e;
  std::vector<std::vector<double>> h;
  for (const Tensor& state : c.states) h.push_back(state.to_vector<double>());
  const std::vector<double> w = c.weight.to_vector<double>();
  const std::vector<double> dacc = c.daccumulated.to_vector<double>();
  const double share = 0.01 / static_cast<double>(tokens);
  for (std::size_t i = 0; i < tokens; ++i) {
    double budget = 0.99, rest = 1, steps = 0, ponder = 0;
    std::vector<double> p(depth), weight(depth), dw(depth), dp(depth, 0.0);
    std::size_t first_last = depth;
    for (std::size_t t = 0; t < depth; ++t) {
      double z = c.bias.item();
      for (std::size_t k = 0; k < width; ++k) z += h[t][i * width + k] * w[k];
      p[t] = 1 / (1 + std::exp(-z));
      const bool active = budget > 0, last = budget - p[t] <= 0;
      weight[t] = active ? (last ? rest : p[t]) : 0;
      steps += active ? 1 : 0;
      ponder = share * (rest + steps);
      if (last && first_last == depth) first_last = t;
      if (!last) rest -= p[t];
      budget -= p[t];
      for (std::size_t k = 0; k < width; ++k) {
        e.accumulated[i * width + k] += weight[t] * h[t][i * width + k];
        dw[t] += dacc[i * width + k] * h[t][i * width + k];
      }
    }
    e.ponder += ponder;
    ++(first_last == 0 ? e.halted_at_once : first_last < depth ? e.halted_later : e.never_halted);
    for (std::size_t t = 0; t < depth; ++t) {
      if (first_last < depth) {
        if (t < first_last) dp[t] = dw[t] - dw[first_last] - c.dponder * share;
      } else {
        dp[t] = dw[t] - (t + 1 < depth ? c.dponder * share : 0);
      }
      const double dz = dp[t] * p[t] * (1 - p[t]);
      e.dbias += dz;
      for (std::size_t k = 0; k < width; ++k) {
        e.dstates[t][i * width + k] = weight[t] * dacc[i * width + k] + dz * w[k];
        e.dweight[k] += dz * h[t][i * width + k];
      }
    }
  }
  return e;
}

Tensor rows(const std::vector<double>& values) {
  return Tensor::from(values, {batch, length, width});
}

}  // namespace

TEST_SUITE("nn") {

TEST_CASE("ACT: weights, ponder and gradients by the definition, halting early, late and never") {
  Expected seen;
  for (const double bias : {4.0, 0.1, -3.0, -6.0}) {
    CAPTURE(bias);
    const Case c = make_case(bias);
    const Expected e = by_definition(c);
    seen.halted_at_once += e.halted_at_once;
    seen.halted_later += e.halted_later;
    seen.never_halted += e.never_halted;

    std::vector<Variable> states;
    for (const Tensor& state : c.states) states.push_back(Variable::leaf(state));
    const Variable weight = Variable::leaf(c.weight), bias_ = Variable::leaf(c.bias);
    Tape tape;
    const Accumulated result = adaptive_computation(states, weight, bias_);
    CHECK(relative_error(result.states.value(), rows(e.accumulated)) < tolerance::forward_f64);
    CHECK(result.ponder.value().item() == doctest::Approx(e.ponder).epsilon(1e-12));

    const std::vector<Variable> results{result.states, result.ponder};
    const std::vector<Tensor> gradients{
        c.daccumulated, Tensor::full({}, c.dponder, DType::f64, tested_device())};
    tape.backward(results, gradients);
    for (std::size_t t = 0; t < depth; ++t) {
      CHECK(relative_error(states[t].gradient(), rows(e.dstates[t])) < tolerance::backward_f64);
    }
    CHECK(relative_error(weight.gradient(), Tensor::from(e.dweight, {width, 1})) <
          tolerance::backward_f64);
    CHECK(bias_.gradient().item() == doctest::Approx(e.dbias).epsilon(1e-12));
  }
  CHECK(seen.halted_at_once > 0);
  CHECK(seen.halted_later > 0);
  CHECK(seen.never_halted > 0);
}

TEST_CASE("ACT: a token that halts has weights that sum to 1, one that never does has less") {
  for (const double bias : {0.1, -6.0}) {
    const Case c = make_case(bias);
    std::vector<Variable> states;
    for (const Tensor& state : c.states) {
      Tensor marked = state.clone();
      marked.slice(2, width - 1, width).fill(1);  // the last component adds the weights up
      states.emplace_back(marked);
    }
    const Tensor sums = adaptive_computation(states, Variable(c.weight), Variable(c.bias))
                            .states.value()
                            .slice(2, width - 1, width);
    std::size_t whole = 0, less = 0;
    for (const double sum : sums.to_vector<double>()) {
      CHECK(sum <= 1 + 1e-12);
      ++(sum > 1 - 1e-12 ? whole : less);
    }
    CHECK((bias < 0 ? less : whole) > 0);
  }
}

}  // TEST_SUITE("nn")
