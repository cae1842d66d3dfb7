// A mechanism by its specification, over tensors: for the tests of single mechanisms.
#pragma once

#include "ops/attention/mechanism.h"
#include "tests/check.h"

namespace weft {

inline Tensor attended(const std::string& spec, const std::vector<Tensor>& inputs,
                       const AttentionCall& call = {}) {
  const std::vector<Variable> variables(inputs.begin(), inputs.end());
  return attend(AttentionSpec(spec), call, variables).value();
}

// Output, then the gradients of all inputs for a random cotangent.
inline Run attended_run(const std::string& spec, const std::vector<Tensor>& inputs,
                        const AttentionCall& call = {}) {
  const auto f = [&](std::span<const Variable> in) {
    return std::vector{attend(AttentionSpec(spec), call, in)};
  };
  return run(f, inputs);
}

inline void check_same_run(const Run& got, const Run& wanted) {
  CHECK(relative_error(got.outputs[0], wanted.outputs[0]) <= tolerance::forward_f64);
  REQUIRE(got.gradients.size() == wanted.gradients.size());
  for (std::size_t i = 0; i < got.gradients.size(); ++i) {
    CAPTURE(i);
    CHECK(relative_error(got.gradients[i], wanted.gradients[i]) <= tolerance::backward_f64);
  }
}

inline Tensor normal(const Shape& shape, std::uint64_t seed, DType type = DType::f64) {
  return random_normal(shape, DType::f64, seed).to(type);
}

}  // namespace weft
