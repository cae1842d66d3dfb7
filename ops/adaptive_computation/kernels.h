// The kernels of adaptive_computation.h.
#pragma once

#include <cstdint>

#include "runtime/device.h"

namespace weft {

// What one token does, given its halting probabilities p_0 … p_{L−1}; those and its weights are
// `stride` and `weights_stride` apart.
template <class T>
struct Halting {
  std::int64_t halt;  // T, or L where the token never halts
  T remainder;        // R before the last step of all
  std::int64_t active;

  constexpr Halting(const T* p, std::int64_t stride, std::int64_t L, T epsilon, T* weights,
                    std::int64_t weights_stride)
      : halt(L), remainder(1), active(0) {
    T budget = 1 - epsilon, kept = 1;
    for (std::int64_t t = 0; t < L; ++t) {
      const T probability = p[t * stride];
      remainder = kept;
      const bool running = budget > 0, last = budget - probability <= 0;
      weights[t * weights_stride] = running ? (last ? kept : probability) : T(0);
      active += running;
      if (running && last) halt = t;
      if (!last) kept -= probability;
      budget -= probability;
    }
  }

  // dp_t; `share` is dponder · cost / tokens.
  constexpr T gradient(std::int64_t t, std::int64_t L, const T* dweights, std::int64_t stride,
                       T share) const {
    if (halt == L) return dweights[t * stride] - (t < L - 1 ? share : T(0));
    return t < halt ? dweights[t * stride] - dweights[halt * stride] - share : T(0);
  }
};

// On CUDA devices states come in groups of 16, and what is known of them stands in matrices
// [states, tokens].
template <class T>
struct StateGroup {
  static constexpr std::int64_t most = 16;
  std::int64_t count = 0;
  T* at[most] = {};  // [tokens, d] each
};

// dots[t, i] = ⟨h_t[i], v[i]⟩, the v `stride` apart.
template <class T>
void act_dots(const Cuda&, const StateGroup<const T>&, std::int64_t tokens, std::int64_t d,
              const T* v, std::int64_t stride, T* dots);

// From logits without bias to p, in place, the weights, and R + n of every token.
template <class T>
void act_weights(const Cuda&, std::int64_t L, std::int64_t tokens, T epsilon, const T* bias,
                 T* probability, T* weights, double* ponder);

// accumulated (+)= Σ_t weight_t h_t
template <class T>
void act_sum(const Cuda&, const StateGroup<const T>&, std::int64_t tokens, std::int64_t d,
             const T* weights, bool add, T* accumulated);

// The weights again, and dp_t p_t (1 − p_t); `share` is cost / tokens.
template <class T>
void act_slopes(const Cuda&, std::int64_t L, std::int64_t tokens, T epsilon, double share,
                const T* probability, const T* dweights, const T* dponder, T* weights, T* dlogits);

// dh_t = weight_t daccumulated + dlogit_t w
template <class T>
void act_state_gradients(const Cuda&, const StateGroup<T>& gradients, std::int64_t tokens,
                         std::int64_t d, const T* weights, const T* dlogits, const T* daccumulated,
                         const T* w);

}  // namespace weft
