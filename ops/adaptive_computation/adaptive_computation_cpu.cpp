#include <cmath>

#include "ops/adaptive_computation/adaptive_computation.h"
#include "ops/adaptive_computation/kernels.h"
#include "runtime/pack.h"
#include "runtime/row_sums.h"
#include "runtime/simd.h"

namespace weft {
namespace {

constexpr i64 block = 256;  // tokens of one task

template <class T>
std::vector<T*> pointers(std::span<const Tensor> tensors) {
  std::vector<T*> list;
  for (const Tensor& tensor : tensors) list.push_back(tensor.data<std::remove_const_t<T>>());
  return list;
}

}  // namespace

template <class Device, class T>
void AdaptiveComputationKernels<Device, T>::forward(const Device&, const AdaptiveComputation& op,
                                                    const AdaptiveComputation::Saved& saved,
                                                    const Tensor& offset, const Tensor& result,
                                                    const Tensor& ponder) {
  const i64 d = saved.weight.size(0), L = saved.probability.size(0);
  const i64 tokens = saved.probability.size(1);
  const std::vector<const T*> states = pointers<const T>(saved.states);
  const T* const weight = saved.weight.data<T>();
  const T bias = *offset.data<T>(), epsilon = static_cast<T>(op.epsilon);
  T *const probability = saved.probability.data<T>(), *const accumulated = result.data<T>();
  double total_ponder = 0;
  const auto each = [&](i64 begin, i64 end, double* sum) {
    std::vector<T> weights(states.size());
    for (i64 i = begin; i < end; ++i) {
      for (i64 t = 0; t < L; ++t) {
        const T logit = simd::dot(states[std::size_t(t)] + i * d, weight, d) + bias;
        probability[t * tokens + i] = 1 / (1 + std::exp(-logit));
      }
      const Halting<T> token(probability + i, tokens, L, epsilon, weights.data(), 1);
      *sum += static_cast<double>(token.remainder) + static_cast<double>(token.active);
      each_pack<T>(d, [&](i64 j, i64 n) {
        Pack<T> total(0);
        for (i64 t = 0; t < L; ++t) {
          const Pack<T> factor(weights[std::size_t(t)]);
          total = factor * Pack<T>::load(states[std::size_t(t)] + i * d + j, n) + total;
        }
        total.store(accumulated + i * d + j, n);
      });
    }
  };
  row_sums<double>(tokens, block, 1, &total_ponder, each);
  *ponder.data<T>() = static_cast<T>(op.ponder_cost * total_ponder / static_cast<double>(tokens));
}

template <class Device, class T>
std::vector<Tensor> AdaptiveComputationKernels<Device, T>::backward(
    const Device&, const AdaptiveComputation& op, const AdaptiveComputation::Saved& saved,
    const Tensor& daccumulated, const Tensor& dponder) {
  const i64 d = saved.weight.size(0), L = saved.probability.size(0);
  const i64 tokens = saved.probability.size(1);
  std::vector<Tensor> results;
  for (const Tensor& state : saved.states) results.push_back(Tensor::empty_like(state));
  const std::vector<const T*> states = pointers<const T>(saved.states);
  const std::vector<T*> dstates = pointers<T>(results);
  const T *const weight = saved.weight.data<T>(), *const probability = saved.probability.data<T>();
  const T epsilon = static_cast<T>(op.epsilon);
  const T share = static_cast<T>(dponder.item() * op.ponder_cost / static_cast<double>(tokens));
  const Tensor sums = Tensor::empty({d + 1}, dtype_of<T>);  // dw, followed by db
  const auto each = [&](i64 begin, i64 end, T* part) {
    std::vector<T> weights(states.size()), dweights(states.size());
    for (i64 i = begin; i < end; ++i) {
      const Halting<T> token(probability + i, tokens, L, epsilon, weights.data(), 1);
      const T* const dout = daccumulated.data<T>() + i * d;
      for (i64 t = 0; t < L; ++t) {
        dweights[std::size_t(t)] = simd::dot(dout, states[std::size_t(t)] + i * d, d);
      }
      for (i64 t = 0; t < L; ++t) {
        const T p = probability[t * tokens + i];
        const T dlogit = token.gradient(t, L, dweights.data(), 1, share) * p * (1 - p);
        const T* const state = states[std::size_t(t)] + i * d;
        T* const dstate = dstates[std::size_t(t)] + i * d;
        const Pack<T> scale(weights[std::size_t(t)]), slope(dlogit);
        each_pack<T>(d, [&](i64 j, i64 n) {
          const Pack<T> through = slope * Pack<T>::load(weight + j, n);
          (scale * Pack<T>::load(dout + j, n) + through).store(dstate + j, n);
          (slope * Pack<T>::load(state + j, n) + Pack<T>::load(part + j, n)).store(part + j, n);
        });
        part[d] += dlogit;
      }
    }
  };
  row_sums<T>(tokens, block, d + 1, sums.data<T>(), each);
  results.push_back(sums.slice(0, 0, d).reshape({d, 1}));
  results.push_back(sums.slice(0, d, d + 1));
  return results;
}

template struct AdaptiveComputationKernels<Cpu, float>;
template struct AdaptiveComputationKernels<Cpu, double>;

}  // namespace weft
