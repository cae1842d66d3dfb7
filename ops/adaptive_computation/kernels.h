// The kernels of adaptive_computation.h.
#pragma once

#include "runtime/device.h"
#include "runtime/types.h"

namespace weft {

// The halting of one token, from its probabilities p_0 … p_{L−1}; those and its weights are
// `stride` and `weights_stride` apart.
template <class T>
struct Halting {
  i64 halt;           // T, or L where the token never halts
  T remainder;        // R before the last step of all
  i64 active;

  constexpr Halting(const T* p, i64 stride, i64 L, T epsilon, T* weights, i64 weights_stride)
      : halt(L), remainder(1), active(0) {
    T budget = 1 - epsilon, kept = 1;
    for (i64 t = 0; t < L; ++t) {
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
  constexpr T gradient(i64 t, i64 L, const T* dweights, i64 stride, T share) const {
    if (halt == L) return dweights[t * stride] - (t < L - 1 ? share : T(0));
    return t < halt ? dweights[t * stride] - dweights[halt * stride] - share : T(0);
  }
};

// On CUDA devices states are processed in groups of 16; what is computed for them is in matrices
// [states, tokens].
template <class T>
struct StateGroup {
  static constexpr i64 most = 16;
  i64 count = 0;
  T* at[most] = {};  // [tokens, d] each
};

template <class Device, class T>
struct StateKernels {
  // dots[t, i] = ⟨h_t[i], v[i]⟩; the v are `stride` apart.
  static void dots(const Device&, const StateGroup<const T>&, i64 tokens, i64 d, const T* v,
                   i64 stride, T* dots);
  // From logits without bias to p, in place, the weights, and R + n for every token.
  static void weights(const Device&, i64 L, i64 tokens, T epsilon, const T* bias, T* probability,
                      T* weights, double* ponder);
  // accumulated (+)= Σ_t weight_t h_t
  static void sum(const Device&, const StateGroup<const T>&, i64 tokens, i64 d, const T* weights,
                  bool add, T* accumulated);
  // The weights again, and dp_t p_t (1 − p_t); `share` is cost / tokens.
  static void slopes(const Device&, i64 L, i64 tokens, T epsilon, double share,
                     const T* probability, const T* dweights, const T* dponder, T* weights,
                     T* dlogits);
  // dh_t = weight_t daccumulated + dlogit_t w
  static void gradients(const Device&, const StateGroup<T>& to, i64 tokens, i64 d, const T* weights,
                        const T* dlogits, const T* daccumulated, const T* w);
};

}  // namespace weft
