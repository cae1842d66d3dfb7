// apply(op, variables…): runs an op and records it.
//
// An op is a struct with
//     name                                               static constexpr const char*, or a member
//     struct Saved;                                      what backward needs, nothing more
//     forward(Saved&, const Tensor&…) const              → Tensor, or several (array or vector)
//     backward(const Saved&, [Wants,] const Tensor&…) const  → gradients of the inputs, in order
// and its options as members. An undefined tensor among the gradients means "none"; Wants says
// which inputs want a gradient, for ops that can skip work. An op over a list takes std::span<const
// Tensor> in forward instead of the tensors; one whose forward returns a vector, in backward.
//
// bf16 is a type of storage: ops compute in f32. If an input is bf16, the bf16 inputs are widened
// to f32 for the op, its results are rounded to bf16, and so are the gradients of the bf16 inputs;
// those of f32 inputs, parameters, stay f32. An op says otherwise by a static constexpr bool:
//     takes_bf16        it is given bf16 as it is, and decides about its results
//     takes_bf16_alone  the same if no input is f32
//     keeps_f32         its results stay f32: a loss
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>

#include "autograd/observer.h"
#include "autograd/tape.h"

namespace weft {

// Which inputs want a gradient.
class Wants {
 public:
  explicit Wants(const std::vector<std::shared_ptr<Gradient>>& places) : places_(places) {}
  bool operator[](std::size_t input) const { return places_[input] != nullptr; }

 private:
  const std::vector<std::shared_ptr<Gradient>>& places_;
};

namespace apply_detail {

inline std::vector<Tensor> as_vector(Tensor tensor) { return {std::move(tensor)}; }
inline std::vector<Tensor> as_vector(std::vector<Tensor> tensors) { return tensors; }
template <std::size_t N>
std::vector<Tensor> as_vector(const std::array<Tensor, N>& tensors) {
  return {tensors.begin(), tensors.end()};
}

// Calls f(tensors[0], tensors[1], …) for N tensors.
template <std::size_t N, class F>
decltype(auto) spread(std::span<const Tensor> tensors, const F& f) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) -> decltype(auto) {
    return f(tensors[I]...);
  }(std::make_index_sequence<N>{});
}

template <class Op>
concept OverList = requires(const Op op, typename Op::Saved saved, std::span<const Tensor> list) {
  op.forward(saved, list);
};

template <class Op>
inline constexpr bool takes_bf16 = requires {
  requires Op::takes_bf16;
};
template <class Op>
inline constexpr bool takes_bf16_alone = requires {
  requires Op::takes_bf16_alone;
};
template <class Op>
inline constexpr bool keeps_f32 = requires {
  requires Op::keeps_f32;
};

inline bool is_narrow(const Tensor& x) { return x.defined() && x.dtype() == DType::bf16; }
inline Tensor widened(const Tensor& x) { return is_narrow(x) ? x.to(DType::f32) : x; }
inline Tensor narrowed(const Tensor& x) {
  return x.defined() && x.dtype() == DType::f32 ? x.to(DType::bf16) : x;
}

// For each input whether it is bf16 and widened for the op; empty if none is.
template <class Op>
std::vector<bool> widened_inputs(std::span<const Variable> inputs) {
  std::vector<bool> wide;
  if constexpr (!takes_bf16<Op>) {
    bool only_bf16 = true;
    for (const Variable& input : inputs) {
      const Tensor& x = input.value();
      wide.push_back(is_narrow(x));
      if (x.defined() && is_floating(x.dtype()) && !is_narrow(x)) only_bf16 = false;
    }
    const bool none = std::find(wide.begin(), wide.end(), true) == wide.end();
    if (none || (takes_bf16_alone<Op> && only_bf16)) wide.clear();
  }
  return wide;
}

// Throws if defined inputs are on different devices.
inline void require_one_device(const char* op, std::span<const Variable> inputs) {
  const Variable* first = nullptr;
  for (const Variable& input : inputs) {
    if (!input.defined()) continue;
    if (first == nullptr) first = &input;
    require(input.value().device() == first->value().device(),
            "{}: wanted tensors on one device, got {} on {} and {} on {}; move one with to(device)",
            op, first->shape(), name_of(first->value().device().type), input.shape(),
            name_of(input.value().device().type));
  }
}

// Outputs is the number of results where forward returns an array, 1 for a Tensor, 0 for a vector.
template <class Result>
inline constexpr std::size_t result_count = 0;
template <>
inline constexpr std::size_t result_count<Tensor> = 1;
template <std::size_t N>
inline constexpr std::size_t result_count<std::array<Tensor, N>> = N;

template <class Op, std::size_t Outputs>
class Recorded final : public Node {
 public:
  Recorded(const Op& op, typename Op::Saved saved, std::vector<bool> wide)
      : op_(op), saved_(std::move(saved)), wide_(std::move(wide)) {}
  const char* name() const override { return op_.name; }

  std::vector<Tensor> backward(std::vector<Tensor> douts) override {
    const Wants wants(inputs);
    if (!wide_.empty()) {
      for (Tensor& dout : douts) dout = widened(dout);
    }
    std::vector<Tensor> gradients = results_of(wants, douts);
    for (std::size_t i = 0; i < wide_.size() && i < gradients.size(); ++i) {
      if (wide_[i]) gradients[i] = narrowed(gradients[i]);
    }
    return gradients;
  }

 private:
  std::vector<Tensor> results_of(const Wants& wants, const std::vector<Tensor>& douts) const {
    const auto call = [&](auto&&... dout) {
      if constexpr (requires { op_.backward(saved_, wants, dout...); }) {
        return as_vector(op_.backward(saved_, wants, dout...));
      } else {
        return as_vector(op_.backward(saved_, dout...));
      }
    };
    if constexpr (Outputs == 0) {
      return call(std::span<const Tensor>(douts));
    } else {
      return spread<Outputs>(douts, call);
    }
  }

  Op op_;
  typename Op::Saved saved_;
  std::vector<bool> wide_;  // inputs that were widened from bf16
};

template <class Op, std::size_t Outputs>
std::vector<Variable> record(const Op& op, typename Op::Saved saved,
                             std::span<const Variable> inputs, std::vector<bool> wide,
                             std::vector<Tensor> values) {
  if (!wide.empty() && !keeps_f32<Op>) {
    for (Tensor& value : values) value = narrowed(value);
  }
  if (Observer* const observer = Observer::current()) observer->made(op.name, inputs, values);
  std::vector<Variable> outputs;
  bool wanted = false;
  for (const Variable& input : inputs) wanted = wanted || input.wants_gradient();
  Tape* const tape = Tape::current();
  if (tape == nullptr || !wanted) {
    for (Tensor& value : values) outputs.emplace_back(std::move(value));
    return outputs;
  }
  auto node = std::make_unique<Recorded<Op, Outputs>>(op, std::move(saved), std::move(wide));
  for (const Variable& input : inputs) node->inputs.push_back(input.place());
  for (Tensor& value : values) {
    node->outputs.push_back(std::make_shared<Gradient>(value));
    outputs.emplace_back(std::move(value), node->outputs.back());
  }
  tape->record(std::move(node));
  return outputs;
}

// forward(); a failure of the device becomes an error that names the op and its inputs.
template <class F>
auto named(const char* op, std::span<const Variable> inputs, const F& forward) {
  try {
    return forward();
  } catch (const DeviceError& error) {
    std::vector<Shape> shapes;
    for (const Variable& input : inputs) {
      if (input.defined()) shapes.push_back(input.shape());
    }
    fail_in(op, shapes, error);
  }
}

}  // namespace apply_detail

// For an op over a list; returns all of its results.
template <apply_detail::OverList Op>
std::vector<Variable> apply_list(const Op& op, std::span<const Variable> inputs) {
  apply_detail::require_one_device(op.name, inputs);
  typename Op::Saved saved;
  std::vector<bool> wide = apply_detail::widened_inputs<Op>(inputs);
  std::vector<Tensor> values;
  for (const Variable& input : inputs) {
    values.push_back(wide.empty() ? input.value() : apply_detail::widened(input.value()));
  }
  auto results = apply_detail::named(
      op.name, inputs, [&] { return op.forward(saved, std::span<const Tensor>(values)); });
  constexpr std::size_t outputs = apply_detail::result_count<decltype(results)>;
  return apply_detail::record<Op, outputs>(op, std::move(saved), inputs, std::move(wide),
                                           apply_detail::as_vector(std::move(results)));
}

// For an op of fixed inputs; returns a Variable, or an array of them as forward does.
template <class Op, class... Inputs>
  requires(sizeof...(Inputs) > 0 && (std::is_convertible_v<Inputs, const Variable&> && ...))
auto apply(const Op& op, const Inputs&... inputs) {
  const std::array<Variable, sizeof...(Inputs)> list{inputs...};
  apply_detail::require_one_device(op.name, list);
  typename Op::Saved saved;
  std::vector<bool> wide = apply_detail::widened_inputs<Op>(list);
  auto results = apply_detail::named(op.name, list, [&] {
    if (wide.empty()) return op.forward(saved, inputs.value()...);
    return op.forward(saved, apply_detail::widened(inputs.value())...);
  });
  constexpr std::size_t outputs = apply_detail::result_count<decltype(results)>;
  std::vector<Variable> variables = apply_detail::record<Op, outputs>(
      op, std::move(saved), list, std::move(wide), apply_detail::as_vector(std::move(results)));
  if constexpr (outputs == 1) {
    return variables[0];
  } else if constexpr (outputs == 0) {
    return variables;
  } else {
    std::array<Variable, outputs> several;
    std::copy(variables.begin(), variables.end(), several.begin());
    return several;
  }
}

}  // namespace weft
