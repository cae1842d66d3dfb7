// apply(op, variables…): runs an op and records it.
//
// An op is a struct with
//     name                                               static constexpr const char*, or a member
//     struct Saved;                                      what backward needs, nothing more
//     forward(Saved&, const Tensor&…) const              → Tensor, or several (array or vector)
//     backward(const Saved&, [Wants,] const Tensor&…) const  → gradients of the inputs, in order
// and its options as members. An undefined tensor among the gradients means "none"; Wants says
// which inputs want a gradient, for ops that can skip work. An op over a list takes std::span<const
// Tensor> instead of the tensors, in forward and in backward.
#pragma once

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

// Calls f(prefix…, tensors[0], tensors[1], …) for N tensors.
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
  Recorded(const Op& op, typename Op::Saved saved) : op_(op), saved_(std::move(saved)) {}
  const char* name() const override { return op_.name; }

  std::vector<Tensor> backward(std::vector<Tensor> douts) override {
    const Wants wants(inputs);
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

 private:
  Op op_;
  typename Op::Saved saved_;
};

template <class Op, std::size_t Outputs>
std::vector<Variable> record(const Op& op, typename Op::Saved saved,
                             std::span<const Variable> inputs, std::vector<Tensor> values) {
  if (Observer* const observer = Observer::current()) observer->made(op.name, inputs, values);
  std::vector<Variable> outputs;
  bool wanted = false;
  for (const Variable& input : inputs) wanted = wanted || input.wants_gradient();
  Tape* const tape = Tape::current();
  if (tape == nullptr || !wanted) {
    for (Tensor& value : values) outputs.emplace_back(std::move(value));
    return outputs;
  }
  auto node = std::make_unique<Recorded<Op, Outputs>>(op, std::move(saved));
  for (const Variable& input : inputs) node->inputs.push_back(input.place());
  for (Tensor& value : values) {
    auto place = std::make_shared<Gradient>();
    node->outputs.push_back({place, value.shape(), value.dtype(), value.device()});
    outputs.emplace_back(std::move(value), std::move(place));
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
  std::vector<Tensor> values;
  for (const Variable& input : inputs) values.push_back(input.value());
  auto results = apply_detail::named(
      op.name, inputs, [&] { return op.forward(saved, std::span<const Tensor>(values)); });
  constexpr std::size_t outputs = apply_detail::result_count<decltype(results)>;
  return apply_detail::record<Op, outputs>(op, std::move(saved), inputs,
                                           apply_detail::as_vector(std::move(results)));
}

// For an op of fixed inputs; returns a Variable, or an array of them as forward does.
template <class Op, class... Inputs>
  requires(sizeof...(Inputs) > 0 && (std::is_convertible_v<Inputs, const Variable&> && ...))
auto apply(const Op& op, const Inputs&... inputs) {
  const std::array<Variable, sizeof...(Inputs)> list{inputs...};
  apply_detail::require_one_device(op.name, list);
  typename Op::Saved saved;
  auto results =
      apply_detail::named(op.name, list, [&] { return op.forward(saved, inputs.value()...); });
  constexpr std::size_t outputs = apply_detail::result_count<decltype(results)>;
  std::vector<Variable> variables = apply_detail::record<Op, outputs>(
      op, std::move(saved), list, apply_detail::as_vector(std::move(results)));
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
