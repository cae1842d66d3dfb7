// Help for the tests of modules.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "nn/attention.h"
#include "nn/initializer.h"
#include "nn/module.h"
#include "runtime/random.h"
#include "tests/check.h"
#include "tests/threads.h"

namespace weft {

inline constexpr DType f64 = DType::f64;

// The parameters on the tested device, as leaves of their own unless that is the CPU.
template <class Module>
void put_on_tested_device(Module& module) {
  move_to(module, tested_device());
}

// Redraws every parameter, biases and gains too, and every buffer: a zero or a one hides a missing
// term.
template <class Module>
void randomise(Module& module, std::uint64_t seed, double deviation = 0.4) {
  put_on_tested_device(module);
  each_parameter(module, [&](const std::string& name, Parameter& parameter) {
    draw({Initializer::normal, deviation}, name, seed, parameter.value());
  });
  for (const NamedBuffer& buffer : buffers(module)) draw(buffer, seed, 0);
}

// Puts these variables in the place of the module's parameters.
template <class Module>
void set_parameters(Module& module, std::span<const Variable> variables) {
  std::size_t next = 0;
  each_parameter(module, [&](const std::string&, Parameter& parameter) {
    parameter.variable = variables[next++];
  });
}

template <class Module>
std::vector<Variable> parameter_variables(Module& module) {
  std::vector<Variable> all;
  for (const NamedParameter& p : parameters(module)) all.push_back(p.variable);
  return all;
}

// The gradients of f(inputs) by the inputs and every parameter of the module.
template <class Module>
void check_gradients_of(Module& module, const Differentiable& f, std::vector<Tensor> inputs,
                        i64 elements = 60) {
  const std::size_t count = inputs.size();
  const std::vector<Variable> originals = parameter_variables(module);
  for (const Variable& p : originals) inputs.push_back(p.value().clone());
  const auto with_parameters = [&](std::span<const Variable> variables) {
    set_parameters(module, variables.subspan(count));
    return f(variables.first(count));
  };
  const ThreadsOf alone(1);  // passes are tiny: more threads cost more than they save
  const GradientError error = tested_gradients(with_parameters, inputs, 1, 1e-6, elements);
  set_parameters(module, originals);
  CHECK_MESSAGE(error.worst < tolerance::gradcheck, error.where);
}

inline Tensor random_ids(const Shape& shape, i64 vocabulary, std::uint64_t seed) {
  return random_integers(shape, vocabulary, seed).to(tested_device());
}

// Of an attention layer from x [2, 5, 6] to its output, in training.
inline void check_gradients_of(nn::Attention& layer, double deviation = 0.4) {
  randomise(layer, 3, deviation);
  const auto trained = [&](std::span<const Variable> v) {
    Context context(true, 5, 1);
    return std::vector<Variable>{layer(context, v[0])};
  };
  check_gradients_of(layer, trained, {random_normal({2, 5, 6}, DType::f64, 1)});
}

}  // namespace weft
