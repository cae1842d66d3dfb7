// CUDA kernels of adaptive computation time; the equations are in adaptive_computation.h.
//
// In f32, forward reads every state twice, 8 bytes an element; backward reads it twice and writes
// its gradient, 12: bound by memory bandwidth (estimated).
#include <cmath>

#include "ops/adaptive_computation/kernels.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

// A team computes one token of a state.
template <class T>
struct DotRow {
  StateGroup<const T> states;
  i64 tokens, d;
  const T* v;
  i64 stride;
  T* dots;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const i64 i = row % tokens;
    const T *const h = states.at[row / tokens] + i * d, *const own = v + i * stride;
    T part = 0;
    for (i64 j = team.rank(); j < d; j += Team::threads) part += h[j] * own[j];
    part = team.sum(part);
    if (team.rank() == 0) dots[row] = part;
  }
};

// A thread computes one token.
template <class T>
struct WeightsOfToken {
  i64 L, tokens;
  T epsilon;
  const T* bias;
  T *probability, *weights;
  double* ponder;

  __device__ void operator()(i64 i) const {
    for (i64 at = i; at < L * tokens; at += tokens) {
      probability[at] = 1 / (1 + std::exp(-(probability[at] + *bias)));
    }
    const Halting<T> token(probability + i, tokens, L, epsilon, weights + i, tokens);
    ponder[i] = static_cast<double>(token.remainder) + static_cast<double>(token.active);
  }
};

// A team computes one token over all states of a group.
template <class T>
struct SumRow {
  StateGroup<const T> states;
  i64 tokens, d;
  const T* weights;
  bool add;
  T* accumulated;

  template <class Team>
  __device__ void operator()(const Team& team, i64 i) const {
    for (i64 j = team.rank(); j < d; j += Team::threads) {
      T total = add ? accumulated[i * d + j] : T(0);
      for (i64 t = 0; t < states.count; ++t) {
        total += weights[t * tokens + i] * states.at[t][i * d + j];
      }
      accumulated[i * d + j] = total;
    }
  }
};

// A thread computes one token.
template <class T>
struct SlopesOfToken {
  i64 L, tokens;
  T epsilon;
  double share;
  const T *probability, *dweights, *dponder;
  T *weights, *dlogits;

  __device__ void operator()(i64 i) const {
    const Halting<T> token(probability + i, tokens, L, epsilon, weights + i, tokens);
    const T each = static_cast<T>(static_cast<double>(*dponder) * share);
    for (i64 t = 0; t < L; ++t) {
      const T p = probability[t * tokens + i];
      dlogits[t * tokens + i] = token.gradient(t, L, dweights + i, tokens, each) * p * (1 - p);
    }
  }
};

// A team computes one token of a state.
template <class T>
struct StateGradientRow {
  StateGroup<T> gradients;
  i64 tokens, d;
  const T *weights, *dlogits, *daccumulated, *w;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const i64 i = row % tokens;
    T* const to = gradients.at[row / tokens] + i * d;
    const T weight = weights[row], slope = dlogits[row];
    for (i64 j = team.rank(); j < d; j += Team::threads) {
      to[j] = weight * daccumulated[i * d + j] + slope * w[j];
    }
  }
};

constexpr const char* name = "adaptive_computation";

}  // namespace

template <class Device, class T>
void StateKernels<Device, T>::dots(const Device& device, const StateGroup<const T>& states,
                                   i64 tokens, i64 d, const T* v,
                                   i64 stride, T* dots) {
  const DotRow<T> each{states, tokens, d, v, stride, dots};
  for_rows(name, device, states.count * tokens, d, each);
}

template <class Device, class T>
void StateKernels<Device, T>::weights(const Device& device, i64 L, i64 tokens,
                                      T epsilon, const T* bias, T* probability, T* weights,
                                      double* ponder) {
  const WeightsOfToken<T> each{L, tokens, epsilon, bias, probability, weights, ponder};
  for_elements(name, device, tokens, each);
}

template <class Device, class T>
void StateKernels<Device, T>::sum(const Device& device, const StateGroup<const T>& states,
                                  i64 tokens, i64 d, const T* weights, bool add,
                                  T* accumulated) {
  for_rows(name, device, tokens, d, SumRow<T>{states, tokens, d, weights, add, accumulated});
}

template <class Device, class T>
void StateKernels<Device, T>::slopes(const Device& device, i64 L, i64 tokens,
                                     T epsilon, double share, const T* probability,
                                     const T* dweights, const T* dponder, T* weights, T* dlogits) {
  const SlopesOfToken<T> each{L,        tokens,  epsilon, share, probability,
                              dweights, dponder, weights, dlogits};
  for_elements(name, device, tokens, each);
}

template <class Device, class T>
void StateKernels<Device, T>::gradients(const Device& device, const StateGroup<T>& gradients,
                                        i64 tokens, i64 d, const T* weights,
                                        const T* dlogits, const T* daccumulated, const T* w) {
  const StateGradientRow<T> each{gradients, tokens, d, weights, dlogits, daccumulated, w};
  for_rows(name, device, gradients.count * tokens, d, each);
}

template struct StateKernels<Cuda, float>;
template struct StateKernels<Cuda, double>;

}  // namespace weft
