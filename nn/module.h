// Modules: plain structs that name their parts.
//
//     struct Pair {
//       nn::Linear first, second;
//       void each(const auto& visit) { visit("first", first), visit("second", second); }
//     };
//
// A part is a Parameter, a Buffer, a module, or an optional or a vector of these. each_parameter()
// and each_buffer() walk them and concatenate the names: "block.attention.qkv.weight",
// "blocks.2.norm1.gain". Initialisation, optimizers, checkpoints and printing all use that walk:
// what each() names is a part everywhere.
//
// A copy of a module shares the parameters and the buffers of the original, and parts of a module
// may be copies of each other: tied weights. A parameter whose variable is detached() is frozen: it
// has no gradient, and optimizers leave it as it is.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "autograd/variable.h"
#include "ops/initializer.h"
#include "runtime/random.h"

namespace weft {

// A learnt tensor and its initializer. A default-constructed one means "none" and is skipped.
struct Parameter {
  Variable variable;
  Initializer initializer;
  Bounds bounds;

  Parameter() = default;
  // Holds NaN until initialize() draws it (nn/initializer.h).
  Parameter(const Shape& shape, Initializer initializer, DType dtype);

  bool defined() const { return variable.defined(); }
  const Tensor& value() const { return variable.value(); }
  operator const Variable&() const { return variable; }
};

// A tensor of a model that is drawn and not learnt: random features. Checkpoints hold it, so that
// evaluation uses what training used. A default-constructed one means "none".
struct Buffer {
  Tensor value;  // NaN until initialize() draws it
  void (*draw)(RandomKey key, const Tensor& target) = nullptr;  // fills a tensor on the CPU
  i64 redraw = 0;           // training steps after which it is redrawn; 0: never
  bool for_host = false;    // the host reads it in every step: it stays on the CPU

  Buffer() = default;
  Buffer(const Shape& shape, void (*draw)(RandomKey, const Tensor&), i64 redraw, DType dtype);

  bool defined() const { return value.defined(); }
};

namespace module_detail {

template <class Part>
inline constexpr bool is_leaf = std::is_same_v<Part, Parameter> || std::is_same_v<Part, Buffer>;

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
  if constexpr (is_leaf<Part>) {
    if constexpr (std::is_invocable_v<F, const std::string&, Part&>) {
      if (part.defined()) f(name, part);
    }
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
  module_detail::walk("", module, [&](const std::string& name, Parameter& part) { f(name, part); });
}

// Calls f(name, Buffer&) for every buffer, in the same order.
template <class Module, class F>
void each_buffer(Module& module, const F& f) {
  module_detail::walk("", module, [&](const std::string& name, Buffer& part) { f(name, part); });
}

struct NamedParameter {
  std::string name;
  Variable variable;
  Initializer initializer;
  Bounds bounds = {};
};

struct NamedBuffer {
  std::string name;
  Buffer buffer;  // a handle on the module's own bytes
};

// Each parameter once, tied ones by their first name.
template <class Module>
std::vector<NamedParameter> parameters(Module& module) {
  std::vector<NamedParameter> list;
  std::set<const void*> known;
  each_parameter(module, [&](const std::string& name, Parameter& parameter) {
    const auto& place = parameter.variable.place();
    if (place != nullptr && !known.insert(place.get()).second) return;
    list.push_back({name, parameter.variable, parameter.initializer, parameter.bounds});
  });
  return list;
}

template <class Module>
std::vector<NamedBuffer> buffers(Module& module) {
  std::vector<NamedBuffer> list;
  each_buffer(module, [&](const std::string& name, Buffer& buffer) {
    list.push_back({name, buffer});
  });
  return list;
}

// A tensor of a model: a handle on the module's own bytes.
struct NamedTensor {
  std::string name;
  Tensor value;
  Bounds bounds = {};  // of a parameter
};

// All tensors in a checkpoint of the module: the parameters, then the buffers.
template <class Module>
std::vector<NamedTensor> tensors(Module& module) {
  std::vector<NamedTensor> list;
  each_parameter(module, [&](const std::string& name, Parameter& p) {
    list.push_back({name, p.value(), p.bounds});
  });
  each_buffer(module, [&](const std::string& name, Buffer& b) { list.push_back({name, b.value}); });
  return list;
}

// The number of elements of all parameters.
template <class Module>
i64 parameter_count(Module& module) {
  i64 count = 0;
  for (const NamedParameter& p : parameters(module)) count += p.variable.value().count();
  return count;
}

template <class Module>
void zero_gradients(Module& module) {
  each_parameter(module, [](const std::string&, Parameter& p) {
    if (p.variable.wants_gradient()) p.variable.place()->clear();
  });
}

// Moves parameters and buffers that are not for the host to this device; accumulated gradients are
// dropped. Optimizers and copies of the module that were made before keep the old ones.
template <class Module>
void move_to(Module& module, Device device) {
  std::map<std::shared_ptr<Gradient>, Variable> moved;  // tied parameters stay tied
  each_parameter(module, [&](const std::string&, Parameter& p) {
    if (p.value().device() == device) return;
    if (!p.variable.wants_gradient()) {
      p.variable = p.value().to(device);
      return;
    }
    Variable& there = moved[p.variable.place()];
    if (!there.defined()) there = Variable::leaf(p.value().to(device));
    p.variable = there;
  });
  each_buffer(module, [&](const std::string&, Buffer& b) {
    if (!b.for_host) b.value = b.value.to(device);
  });
}

// One line a parameter (name, shape, count, initializer), and the total.
std::string parameter_table(const std::vector<NamedParameter>& parameters);

}  // namespace weft
