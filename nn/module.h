// Modules: plain structs that name their parts.
//
//     struct Pair {
//       nn::Linear first, second;
//       void each(const auto& visit) { visit("first", first), visit("second", second); }
//     };
//
// A part is a Parameter, a module, or an optional or a vector of either. each_parameter() walks
// them and puts the names together: "block.attention.qkv.weight", "blocks.2.norm1.gain".
// Initialisation, optimizers, checkpoints and printing stand on that walk: what each() names is a
// part everywhere.
//
// A copy of a module shares the parameters of the original.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "autograd/variable.h"
#include "ops/initializer.h"

namespace weft {

// A learnt tensor and how it starts. One made by default stands for "none": it is passed over.
struct Parameter {
  Variable variable;
  Initializer initializer;

  Parameter() = default;
  // Holds NaN until initialize() draws it (nn/initializer.h).
  Parameter(const Shape& shape, Initializer initializer, DType dtype);

  bool defined() const { return variable.defined(); }
  const Tensor& value() const { return variable.value(); }
  operator const Variable&() const { return variable; }
};

namespace module_detail {

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

template <class Part, class F>
void walk(const std::string& name, Part& part, const F& f) {
  if constexpr (std::is_same_v<Part, Parameter>) {
    if (part.defined()) f(name, part);
  } else if constexpr (is_optional<Part>) {
    if (part) walk(name, *part, f);
  } else if constexpr (is_vector<Part>) {
    for (std::size_t i = 0; i < part.size(); ++i) {
      walk(name + "." + std::to_string(i), part[i], f);
    }
  } else {
    part.each([&](const std::string& inner, auto& child) {
      walk(name.empty() ? inner : name + "." + inner, child, f);
    });
  }
}

}  // namespace module_detail

// Calls f(name, Parameter&) for every parameter, in the order in which the modules name them.
template <class Module, class F>
void each_parameter(Module& module, const F& f) {
  module_detail::walk("", module, f);
}

struct NamedParameter {
  std::string name;
  Variable variable;
  Initializer initializer;
};

template <class Module>
std::vector<NamedParameter> parameters(Module& module) {
  std::vector<NamedParameter> list;
  each_parameter(module, [&](const std::string& name, Parameter& parameter) {
    list.push_back({name, parameter.variable, parameter.initializer});
  });
  return list;
}

// The number of learnt numbers.
template <class Module>
std::int64_t parameter_count(Module& module) {
  std::int64_t count = 0;
  each_parameter(module, [&](const std::string&, Parameter& p) { count += p.value().count(); });
  return count;
}

template <class Module>
void zero_gradients(Module& module) {
  each_parameter(module, [](const std::string&, Parameter& p) { p.variable.place()->clear(); });
}

// Puts the parameters on this device; gradients that gathered stay behind. Optimizers and copies of the
// module that were made before keep the old ones.
template <class Module>
void move_to(Module& module, Device device) {
  each_parameter(module, [&](const std::string&, Parameter& p) {
    if (p.value().device() != device) p.variable = Variable::leaf(p.value().to(device));
  });
}

// One line a parameter (name, shape, count, start), and the total.
std::string parameter_table(const std::vector<NamedParameter>& parameters);

}  // namespace weft
