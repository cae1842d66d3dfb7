// A mechanism by its specification, over tensors: for the tests of single mechanisms.
#pragma once

#include <cmath>

#include "ops/attention/mechanism.h"
#include "tests/check.h"

namespace weft {

inline Differentiable mechanism_of(const std::string& spec, const AttentionCall& call = {}) {
  return [=](std::span<const Variable> inputs) {
    return std::vector{attend(AttentionSpec(spec), call, inputs).out};
  };
}

inline Tensor attended(const std::string& spec, const std::vector<Tensor>& inputs,
                       const AttentionCall& call = {}) {
  const std::vector<Tensor> moved = on_device(inputs);
  const std::vector<Variable> variables(moved.begin(), moved.end());
  return attend(AttentionSpec(spec), call, variables).out.value().to(Device{});
}

// Output, then the gradients of all inputs for a random cotangent.
inline Run attended_run(const std::string& spec, const std::vector<Tensor>& inputs,
                        const AttentionCall& call = {}) {
  return run(mechanism_of(spec, call), inputs);
}

// The same by the definition.
inline Run defined_run(const std::string& spec, const std::vector<Tensor>& inputs,
                       const AttentionCall& call = {}) {
  const AttentionSpec parsed(spec);
  const auto definition = [&](std::span<const Variable> variables) {
    return std::vector{defined(parsed, call, variables).out};
  };
  return run(definition, inputs, 17, Device{});
}

// The pairs of N positions in all of H heads that its cost counts: two exponentials each.
inline double counted_pairs(const std::string& spec, i64 N, bool causal, i64 H = 1) {
  const AttentionSizes sizes{.B = 1, .N = N, .S = N, .H = H, .E = 4, .M = 5};
  return attention_cost(AttentionSpec(spec), sizes, causal, DType::f64).exponentials / 2;
}

// The pairs (i, j) of N positions with sees(i, j).
template <class F>
double pairs_where(i64 N, const F& sees) {
  i64 count = 0;
  for (i64 pair = 0; pair < N * N; ++pair) count += sees(pair / N, pair % N) ? 1 : 0;
  return double(count);
}

// The choices that it drew and decided.
inline Choices chosen(const std::string& spec, const std::vector<Tensor>& inputs,
                      AttentionCall call = {}) {
  Choices choices;
  call.chosen = &choices;
  attended(spec, inputs, call);
  for (auto& [name, value] : choices) value = value.to(Device{});
  return choices;
}

inline AttentionCall causal() {
  AttentionCall call;
  call.causal = true;
  return call;
}

// A call with these lengths; none: without lengths.
inline AttentionCall with_lengths(const std::vector<i64>& lengths) {
  AttentionCall call;
  if (!lengths.empty()) call.lengths = lengths_of(lengths);
  return call;
}

inline void check_close(const Tensor& got, const Tensor& wanted) {
  CHECK(relative_error(got, wanted) <= tolerance::forward_f64);
}

// Standard normal q [B, N, H, E], k [B, S, H, E] and v [B, S, H, M].
struct QueryKeyValue {
  Tensor q, k, v;
  QueryKeyValue(i64 B, i64 N, i64 S, i64 H, i64 E, i64 M, DType type = DType::f64)
      : q(random_normal({B, N, H, E}, DType::f64, 1).to(type)),
        k(random_normal({B, S, H, E}, DType::f64, 2).to(type)),
        v(random_normal({B, S, H, M}, DType::f64, 3).to(type)) {}
  std::vector<Tensor> list() const { return {q, k, v}; }
};

// Values [B, S, H, S] that are unit vectors: the output for them is the weights.
inline Tensor unit_values(i64 B, i64 S, i64 H) {
  const Tensor values = Tensor::zeros({B, S, H, S}, DType::f64);
  for (i64 j = 0; j < S; ++j) values.slice(1, j, j + 1).slice(3, j, j + 1).fill(1);
  return values;
}

// A copy of x [B, N, H, E] with zeros at position 5, and with `all` in the whole first head.
inline Tensor with_zero_rows(const Tensor& x, bool all) {
  const Tensor y = x.clone();
  y.slice(1, 5, 6).fill(0);
  if (all) y.slice(2, 0, 1).fill(0);
  return y;
}

inline void check_finite(const Run& run) {
  for (const Tensor& x : run.all()) {
    for (const double value : x.to(DType::f64).to_vector<double>()) CHECK(std::isfinite(value));
  }
}

inline Tensor normal(const Shape& shape, std::uint64_t seed, DType type = DType::f64) {
  return random_normal(shape, DType::f64, seed).to(type);
}

}  // namespace weft
