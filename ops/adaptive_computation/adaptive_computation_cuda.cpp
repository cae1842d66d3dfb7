#include "ops/adaptive_computation/adaptive_computation.h"
#include "ops/adaptive_computation/kernels.h"
#include "ops/pointwise/kernels.h"
#include "ops/reduce/reduce.h"
#include "runtime/cuda/device.h"
#include "runtime/matmul.h"

namespace weft {
namespace {

// Calls f(group, t) for the states t, t + 1, … of each group.
template <class T, class F>
void each_group(std::span<const Tensor> states, const F& f) {
  const auto L = static_cast<i64>(states.size());
  for (i64 first = 0; first < L; first += StateGroup<T>::most) {
    StateGroup<T> group;
    group.count = std::min(StateGroup<T>::most, L - first);
    for (i64 t = 0; t < group.count; ++t) {
      group.at[t] = states[static_cast<std::size_t>(first + t)].data<std::remove_const_t<T>>();
    }
    f(group, first);
  }
}

}  // namespace

template <class Device, class T>
void AdaptiveComputationKernels<Device, T>::forward(const Device& device,
                                                    const AdaptiveComputation& op,
                                                    const AdaptiveComputation::Saved& saved,
                                                    const Tensor& bias, const Tensor& accumulated,
                                                    const Tensor& ponder) {
  const i64 d = saved.weight.size(0), L = saved.probability.size(0);
  const i64 tokens = saved.probability.size(1);
  const Tensor weights = Tensor::empty_like(saved.probability);
  const Tensor terms = Tensor::empty({tokens}, DType::f64, weights.device());
  T *const probability = saved.probability.data<T>(), *const shares = weights.data<T>();
  each_group<const T>(saved.states, [&](const StateGroup<const T>& states, i64 t) {
    StateKernels<Cuda, T>::dots(device, states, tokens, d, saved.weight.data<T>(), 0,
                                probability + t * tokens);
  });
  StateKernels<Cuda, T>::weights(device, L, tokens, static_cast<T>(op.epsilon), bias.data<T>(),
                                 probability, shares, terms.data<double>());
  each_group<const T>(saved.states, [&](const StateGroup<const T>& states, i64 t) {
    StateKernels<Cuda, T>::sum(device, states, tokens, d, shares + t * tokens, t > 0,
                               accumulated.data<T>());
  });
  const Tensor total = sum_over(terms, 0, 0);
  PointwiseKernels<Cuda, double>::scale(device, 1, op.ponder_cost / static_cast<double>(tokens),
                                        total.data<double>(), total.data<double>());
  ponder.copy_from(total);
}

template <class Device, class T>
std::vector<Tensor> AdaptiveComputationKernels<Device, T>::backward(
    const Device& device, const AdaptiveComputation& op, const AdaptiveComputation::Saved& saved,
    const Tensor& daccumulated, const Tensor& dponder) {
  const i64 d = saved.weight.size(0), L = saved.probability.size(0);
  const i64 tokens = saved.probability.size(1);
  const T *const dout = daccumulated.data<T>(), *const w = saved.weight.data<T>();
  const Tensor weights = Tensor::empty_like(saved.probability);
  const Tensor dweights = Tensor::empty_like(weights), dlogits = Tensor::empty_like(weights);
  T *const shares = weights.data<T>(), *const slopes = dlogits.data<T>();
  each_group<const T>(saved.states, [&](const StateGroup<const T>& states, i64 t) {
    StateKernels<Cuda, T>::dots(device, states, tokens, d, dout, d,
                                dweights.data<T>() + t * tokens);
  });
  StateKernels<Cuda, T>::slopes(
      device, L, tokens, static_cast<T>(op.epsilon), op.ponder_cost / static_cast<double>(tokens),
      saved.probability.data<T>(), dweights.data<T>(), dponder.data<T>(), shares, slopes);
  std::vector<Tensor> results;
  for (const Tensor& state : saved.states) results.push_back(Tensor::empty_like(state));
  each_group<T>(results, [&](const StateGroup<T>& gradients, i64 t) {
    StateKernels<Cuda, T>::gradients(device, gradients, tokens, d, shares + t * tokens,
                                     slopes + t * tokens, dout, w);
  });
  const Tensor dw = Tensor::empty({1, d}, weights.dtype(), weights.device());
  for (i64 t = 0; t < L; ++t) {
    const Tensor& state = saved.states[static_cast<std::size_t>(t)];
    matmul_into(dlogits.slice(0, t, t + 1), state.reshape({tokens, d}), dw, t > 0);
  }
  results.push_back(dw.reshape({d, 1}));
  results.push_back(sum_over(dlogits, 0, 1).reshape({1}));
  return results;
}

template struct AdaptiveComputationKernels<Cuda, float>;
template struct AdaptiveComputationKernels<Cuda, double>;

}  // namespace weft
