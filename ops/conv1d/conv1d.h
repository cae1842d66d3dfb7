// Causal convolution with W taps along the sequence: position t sees t − W + 1 … t; positions
// before the start are zero.
//
//     z_t = b + Σ_{k=0}^{W−1} x_{t−W+1+k} W_k        x [B, N, n], W [W, n, m], b [m], y [B, N, m]
//     y = z, or max(z, 0) with Activation::relu
//
// With contiguous rows of x, the window of position t is a range of W·n numbers, so that all
// windows of a sequence are a matrix with overlapping rows, and z is its product with W seen as
// [W·n, m]: no im2col copy. If W is a multiple of four, and there are enough rows, the product is
// halved twice, as in halves.h: 9/16 of the multiplications. CUDA devices copy the windows, as
// cuBLAS has no overlapping rows.
//
// Backward, dz = dy ⊙ 1[y > 0] with relu:
//     dx_s = Σ_{k} dz_{s+W−1−k} W_kᵀ     (the same product, over windows that look ahead)
//     dW_k = Σ_t x_{t−W+1+k}ᵀ dz_t,   db = Σ_t dz_t
//
// Saved: x and W as handles, and y as one if relu needs it.
//
// In bf16, CPUs with AVX512-BF16 multiply pairs of bf16, not halved, and sum in f32: W is rounded,
// y and dx are rounded once, dW and db are f32 if W is. Elsewhere apply() widens.
#pragma once

#include "autograd/apply.h"
#include "ops/pointwise/activation.h"

namespace weft {

struct CausalConv1d {
  static constexpr const char* name = "causal_conv1d";
  Activation activation = Activation::none;

  struct Saved {
    Tensor x, weight, y;
    DType learnt = DType::f32;  // of W and b as they were given
  };
  Tensor forward(Saved&, const Tensor& x, const Tensor& weight, const Tensor& bias) const;
  std::array<Tensor, 3> backward(const Saved&, const Tensor& dy) const;
};

struct StoredCausalConv1d : CausalConv1d {
  static constexpr bool takes_bf16 = true;
};

// The kernels of forward and backward; their tensors are checked and packed. With bf16, which the
// CPU alone has, the bias and its gradient and that of the weight are f32.
template <class Device, class T>
struct CausalConv1dKernels {
  using Saved = CausalConv1d::Saved;
  static void forward(const Device&, const Saved&, const Tensor& bias, bool relu, const Tensor& y);
  static std::array<Tensor, 3> backward(const Device&, const Saved&, const Tensor& dy);
};

// Activation none or relu. Throws if the widths do not fit.
Variable causal_conv1d(const Variable& x, const Variable& weight, const Variable& bias,
                       Activation activation = Activation::none);

}  // namespace weft
