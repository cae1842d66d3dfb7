// Feed-forward: the two-layer map of every position, fused.
//
//     z = x W₁ + b₁,   f = φ(z),   y = f W₂ + b₂        x [.., d], W₁ [d, h], W₂ [h, d']
//
// φ is ReLU, SiLU (ops/pointwise), or GELU in its tanh form (D. Hendrycks, K. Gimpel, arXiv
// 1606.08415):
//     φ(z) = z σ(2u),   u = √(2/π) (z + 0.044715 z³)           since ½(1 + tanh u) = σ(2u)
//
// Backward:
//     df = dy W₂ᵀ,   dz = df ⊙ φ'(z),   dx = dz W₁ᵀ
//     dW₂ = fᵀ dy,   db₂ = Σ dy,   dW₁ = xᵀ dz,   db₁ = Σ dz           (sums over positions)
//     φ'(z) = s + z s (1 − s) 2u',   s = σ(2u),   u' = √(2/π) (1 + 3·0.044715 z²)
//
// Saved: x and the weights as handles, and z. f, df and dz, each four times as wide as x in a
// transformer, exist only for one block of rows at a time, in cache; one exponential recomputes
// both φ and φ'. On CUDA devices they are materialised, between the large products.
//
// In bf16, the weights and biases may be f32: the weights and b₂ are rounded to bf16, and so are z,
// f and dz for the products, which are summed in f32. The gradients of weights and biases are f32
// if these are.
#pragma once

#include "autograd/apply.h"
#include "ops/pointwise/activation.h"

namespace weft {

struct FeedForward {
  static constexpr const char* name = "feed_forward";
  static constexpr bool takes_bf16 = true;
  Activation activation = Activation::gelu;

  struct Saved {
    Tensor x, weight1, weight2, z;
    DType learnt = DType::f32;  // of the weights as they were given
  };
  Tensor forward(Saved&, const Tensor& x, const Tensor& weight1, const Tensor& bias1,
                 const Tensor& weight2, const Tensor& bias2) const;
  std::array<Tensor, 5> backward(const Saved&, const Tensor& dy) const;
};

// The kernels of forward and backward; their tensors are checked and packed; activation relu, gelu
// or silu. x, z, y and the weights are of type T; the biases and the gradients of weights and
// biases are f32 if that is bf16.
template <class Device, class T>
struct FeedForwardKernels {
  using Saved = FeedForward::Saved;
  static void forward(const Device&, Activation, const Saved&, const Tensor& bias1,
                      const Tensor& bias2, const Tensor& y);
  static std::array<Tensor, 5> backward(const Device&, Activation, const Saved&, const Tensor& dy);
};

// Throws if the widths do not fit.
Variable feed_forward(const Variable& x, const Variable& weight1, const Variable& bias1,
                      const Variable& weight2, const Variable& bias2,
                      Activation activation = Activation::gelu);

}  // namespace weft
