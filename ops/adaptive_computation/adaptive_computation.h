// Adaptive computation time over the depth of a universal transformer.
// A. Graves, "Adaptive computation time for recurrent neural networks", arXiv 1603.08983;
// M. Dehghani et al., "Universal transformers", ICLR 2019, arXiv 1807.03819. This is the form of
// the keras-transformer library, which the agglomerative-attention models use.
//
// For each token, with states h_0 … h_{L−1} [d], budget B = 1 − ε, remainder R = 1, count n = 0:
//     p_t = σ(h_t w + b)
//     active = B > 0,   last = B − p_t <= 0
//     weight_t = last ? R : p_t while active, else 0
//     n ← n + active,   ponder = cost · mean over tokens (R + n)    of the last step, R before it
//     R ← last ? R : R − p_t,   B ← B − p_t
//     accumulated = Σ_t weight_t h_t
// Every step is computed. A token that never halts keeps Σ weights < 1.
//
// Backward, with T the first step with last, dweight_t = daccumulated · h_t and
// c = dponder · cost / tokens; n has no gradient:
//     dp_t = dweight_t − dweight_T − c for t < T, 0 from T on          of a token that halts
//     dp_t = dweight_t − c for t < L − 1, dweight_t for t = L − 1      of a token that never halts
//     dh_t = weight_t daccumulated + dp_t p_t (1 − p_t) w
//     dw = Σ dp_t p_t (1 − p_t) h_t,   db = Σ dp_t p_t (1 − p_t)
//
// Saved: the states and w as handles, and p [L, tokens], from which the rest is recomputed.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct AdaptiveComputation {
  static constexpr const char* name = "adaptive_computation";
  static constexpr bool keeps_f32 = true;  // ponder is a term of the loss
  double epsilon = 0.01;
  double ponder_cost = 0.01;

  struct Saved {
    std::vector<Tensor> states;
    Tensor weight, probability;
  };
  // The list: h_0 … h_{L−1} [.., d], w [d, 1], b [1]. Results: accumulated [.., d], ponder [].
  std::array<Tensor, 2> forward(Saved&, std::span<const Tensor> list) const;
  std::vector<Tensor> backward(const Saved&, const Tensor& daccumulated,
                               const Tensor& dponder) const;
};

// The kernels of forward and backward; their tensors are checked and packed, the gradients in the
// order of the list.
template <class Device, class T>
struct AdaptiveComputationKernels {
  using Saved = AdaptiveComputation::Saved;
  static void forward(const Device&, const AdaptiveComputation&, const Saved&, const Tensor& bias,
                      const Tensor& accumulated, const Tensor& ponder);
  static std::vector<Tensor> backward(const Device&, const AdaptiveComputation&, const Saved&,
                                      const Tensor& daccumulated, const Tensor& dponder);
};

struct Accumulated {
  Variable states;  // [.., d]
  Variable ponder;  // []
};
Accumulated adaptive_computation(std::span<const Variable> states, const Variable& weight,
                                 const Variable& bias, const AdaptiveComputation& options = {});

}  // namespace weft
