#include "ops/adaptive_computation/adaptive_computation.h"

#include <cmath>

#include "runtime/dispatch.h"
#include "runtime/row_sums.h"
#include "runtime/simd.h"

namespace weft {
namespace {

constexpr std::int64_t block = 256;  // tokens of one piece of parallel work

// What one token does, given its halting probabilities p_0 … p_{L−1} (`stride` apart).
template <class T>
struct Halting {
  std::int64_t halt;  // T, or L where the token never halts
  T remainder;        // R before the last step of all
  std::int64_t active;

  Halting(const T* p, std::int64_t stride, std::int64_t L, T epsilon, T* weights) {
    T budget = 1 - epsilon;
    remainder = 1;
    halt = L;
    active = 0;
    T kept = 1;
    for (std::int64_t t = 0; t < L; ++t) {
      const T probability = p[t * stride];
      remainder = kept;
      const bool running = budget > 0, last = budget - probability <= 0;
      weights[t] = running ? (last ? kept : probability) : T(0);
      active += running;
      if (running && last) halt = t;
      if (!last) kept -= probability;
      budget -= probability;
    }
  }
};

template <class T>
void act_forward(const Cpu&, std::span<const T* const> states, std::int64_t tokens, std::int64_t d,
                 const T* weight, T bias, T epsilon, T* probability, T* accumulated,
                 double* ponder) {
  const auto L = static_cast<std::int64_t>(states.size());
  row_sums<double>(tokens, block, 1, ponder, [&](std::int64_t begin, std::int64_t end, double* sum) {
    std::vector<T> weights(states.size());
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t t = 0; t < L; ++t) {
        const T logit = simd::dot(states[std::size_t(t)] + i * d, weight, d) + bias;
        probability[t * tokens + i] = 1 / (1 + std::exp(-logit));
      }
      const Halting<T> token(probability + i, tokens, L, epsilon, weights.data());
      *sum += static_cast<double>(token.remainder) + static_cast<double>(token.active);
      for (std::int64_t j = 0; j < d; j += simd::lanes<T>) {
        auto total = simd::hn::Zero(simd::Tag<T>{});
        for (std::int64_t t = 0; t < L; ++t) {
          const auto factor = simd::hn::Set(simd::Tag<T>{}, weights[std::size_t(t)]);
          total = simd::hn::MulAdd(factor, simd::load(states[std::size_t(t)] + i * d + j, d - j),
                                   total);
        }
        simd::store<T>(total, accumulated + i * d + j, d - j);
      }
    }
  });
}

// `sums` gathers dw [d] and, behind it, db. `share` is dponder · cost / tokens.
template <class T>
void act_backward(const Cpu&, std::span<const T* const> states, std::span<T* const> dstates,
                  std::int64_t tokens, std::int64_t d, const T* weight, T epsilon, T share,
                  const T* probability, const T* daccumulated, T* sums) {
  const auto L = static_cast<std::int64_t>(states.size());
  row_sums<T>(tokens, block, d + 1, sums, [&](std::int64_t begin, std::int64_t end, T* part) {
    namespace hn = simd::hn;
    const simd::Tag<T> tag;
    std::vector<T> weights(states.size()), dweights(states.size());
    for (std::int64_t i = begin; i < end; ++i) {
      const Halting<T> token(probability + i, tokens, L, epsilon, weights.data());
      const T* const dout = daccumulated + i * d;
      for (std::int64_t t = 0; t < L; ++t) {
        dweights[std::size_t(t)] = simd::dot(dout, states[std::size_t(t)] + i * d, d);
      }
      for (std::int64_t t = 0; t < L; ++t) {
        const T p = probability[t * tokens + i];
        T dp = 0;
        if (token.halt < L) {
          if (t < token.halt) dp = dweights[std::size_t(t)] - dweights[std::size_t(token.halt)] - share;
        } else {
          dp = dweights[std::size_t(t)] - (t < L - 1 ? share : T(0));
        }
        const T dlogit = dp * p * (1 - p);
        const auto scale = hn::Set(tag, weights[std::size_t(t)]), slope = hn::Set(tag, dlogit);
        for (std::int64_t j = 0; j < d; j += simd::lanes<T>) {
          const auto through = hn::Mul(slope, simd::load(weight + j, d - j));
          simd::store<T>(hn::MulAdd(scale, simd::load(dout + j, d - j), through),
                         dstates[std::size_t(t)] + i * d + j, d - j);
          const auto state = simd::load(states[std::size_t(t)] + i * d + j, d - j);
          simd::store<T>(hn::MulAdd(slope, state, simd::load(part + j, d - j)), part + j, d - j);
        }
        part[d] += dlogit;
      }
    }
  });
}

template <class T>
std::vector<T*> pointers(std::span<const Tensor> tensors) {
  std::vector<T*> list;
  for (const Tensor& tensor : tensors) list.push_back(tensor.data<std::remove_const_t<T>>());
  return list;
}

}  // namespace

std::array<Tensor, 2> AdaptiveComputation::forward(Saved& saved,
                                                   std::span<const Tensor> list) const {
  require(list.size() >= 3, "adaptive_computation: wanted at least one state, a weight and a bias");
  const Tensor& weight = list[list.size() - 2];
  const Tensor& bias = list[list.size() - 1];
  const auto states = list.first(list.size() - 2);
  const std::int64_t d = states[0].size(-1);
  require(weight.shape() == Shape{d, 1} && bias.count() == 1,
          "adaptive_computation: states {} want a weight [{}, 1] and a bias [1], got {} and {}",
          states[0].shape(), d, weight.shape(), bias.shape());
  for (const Tensor& state : states) {
    require(state.shape() == states[0].shape() && state.dtype() == weight.dtype(),
            "adaptive_computation: all states must be {} of {}, got {} of {}", states[0].shape(),
            name_of(weight.dtype()), state.shape(), name_of(state.dtype()));
    saved.states.push_back(state.packed());
  }
  const auto L = static_cast<std::int64_t>(states.size());
  const std::int64_t tokens = states[0].count() / d;
  saved.weight = weight.packed();
  saved.probability = Tensor::empty({L, tokens}, weight.dtype(), weight.device());
  Tensor accumulated = Tensor::empty(states[0].shape(), weight.dtype(), weight.device());
  double ponder = 0;
  dispatch(weight, [&](auto device, auto type) {
    using T = decltype(type);
    act_forward<T>(device, pointers<const T>(saved.states), tokens, d, saved.weight.data<T>(),
                   static_cast<T>(bias.item()), static_cast<T>(epsilon),
                   saved.probability.data<T>(), accumulated.data<T>(), &ponder);
  });
  return {accumulated, Tensor::full({}, ponder_cost * ponder / static_cast<double>(tokens),
                                    weight.dtype(), weight.device())};
}

std::vector<Tensor> AdaptiveComputation::backward(const Saved& saved, const Tensor& daccumulated,
                                                  const Tensor& dponder) const {
  const std::int64_t d = saved.weight.size(0), tokens = saved.probability.size(1);
  const Tensor gradient = daccumulated.packed();
  std::vector<Tensor> results;
  for (const Tensor& state : saved.states) {
    results.push_back(Tensor::empty_like(state));
  }
  const Tensor sums = Tensor::empty({d + 1}, gradient.dtype(), gradient.device());
  dispatch(gradient, [&](auto device, auto type) {
    using T = decltype(type);
    const double share = dponder.item() * ponder_cost / static_cast<double>(tokens);
    act_backward<T>(device, pointers<const T>(saved.states), pointers<T>(results), tokens, d,
                    saved.weight.data<T>(), static_cast<T>(epsilon), static_cast<T>(share),
                    saved.probability.data<T>(), gradient.data<T>(), sums.data<T>());
  });
  results.push_back(sums.slice(0, 0, d).reshape({d, 1}));
  results.push_back(sums.slice(0, d, d + 1));
  return results;
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
