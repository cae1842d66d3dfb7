#include "ops/adaptive_computation/adaptive_computation.h"

#include "runtime/dispatch.h"

namespace weft {

std::array<Tensor, 2> AdaptiveComputation::forward(Saved& saved,
                                                   std::span<const Tensor> list) const {
  require(list.size() >= 3, "adaptive_computation: wanted at least one state, a weight and a bias");
  const Tensor& weight = list[list.size() - 2];
  const Tensor& bias = list[list.size() - 1];
  const auto states = list.first(list.size() - 2);
  require_real(name, weight);
  const i64 d = states[0].size(-1);
  require(
      weight.shape() == Shape{d, 1} && bias.shape() == Shape{1} && bias.dtype() == weight.dtype(),
      "adaptive_computation: states {} need a weight [{}, 1] and a bias [1] of one type, got {} {} "
      "and {} {}",
      states[0].shape(), d, weight.shape(), name_of(weight.dtype()), bias.shape(),
      name_of(bias.dtype()));
  for (const Tensor& state : states) {
    require(state.shape() == states[0].shape() && state.dtype() == weight.dtype(),
            "adaptive_computation: all states must be {} of {}, got {} of {}", states[0].shape(),
            name_of(weight.dtype()), state.shape(), name_of(state.dtype()));
    saved.states.push_back(state.packed());
  }
  const auto L = static_cast<i64>(states.size());
  const i64 tokens = states[0].rows();
  require(tokens > 0, "adaptive_computation: there are no tokens in {}", states[0].shape());
  saved.weight = weight.packed();
  saved.probability = Tensor::empty({L, tokens}, weight.dtype(), weight.device());
  Tensor accumulated = Tensor::empty(states[0].shape(), weight.dtype(), weight.device());
  const Tensor ponder = Tensor::empty({}, weight.dtype(), weight.device());
  dispatch(weight, [&](auto device, auto type) {
    AdaptiveComputationKernels<decltype(device), decltype(type)>::forward(
        device, *this, saved, bias, accumulated, ponder);
  });
  return {accumulated, ponder};
}

std::vector<Tensor> AdaptiveComputation::backward(const Saved& saved, const Tensor& daccumulated,
                                                  const Tensor& dponder) const {
  const Tensor gradient = daccumulated.packed();
  return dispatch(gradient, [&](auto device, auto type) {
    return AdaptiveComputationKernels<decltype(device), decltype(type)>::backward(
        device, *this, saved, gradient, dponder);
  });
}

Accumulated adaptive_computation(std::span<const Variable> states, const Variable& weight,
                                 const Variable& bias, const AdaptiveComputation& options) {
  std::vector<Variable> list(states.begin(), states.end());
  list.push_back(weight);
  list.push_back(bias);
  const std::vector<Variable> results = apply_list(options, list);
  return {results[0], results[1]};
}

}  // namespace weft
