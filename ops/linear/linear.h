// Linear: an affine map of the last axis.
//
//     y = x W + b                     x [.., n], W [n, m], b [m] (or none), y [.., m]
//
// Backward, with the leading axes flattened to rows:
//     dx = dy Wᵀ,    dW = xᵀ dy,    db = Σ_rows dy
//
// Saved: x and W, as handles.
//
// In bf16, W and b may be f32: they are rounded to bf16 for the products, which are summed in f32.
// y and dx are rounded once; dW and db are f32 if W is. Saved are x and the rounded W.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct Linear {
  static constexpr const char* name = "linear";
  static constexpr bool takes_bf16 = true;
  struct Saved {
    Tensor x, weight;
    bool biased = false;
    DType learnt = DType::f32;  // of W and b as they were given
  };
  Tensor forward(Saved&, const Tensor& x, const Tensor& weight, const Tensor& bias) const;
  std::array<Tensor, 3> backward(const Saved&, Wants, const Tensor& dy) const;
};

struct LinearGradients {
  Tensor x, weight, bias;  // undefined if not wanted
};

// The kernels of forward and backward; their tensors are checked and packed, all of type T but the
// gradients of weight and bias, which are f32 if T is bf16. On the CPU rows are multiplied in
// blocks that stay in cache; on CUDA devices, and in bf16, these are the products above.
template <class Device, class T>
struct LinearKernels {
  static void forward(const Device&, const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const Tensor& y);
  static void backward(const Device&, const Tensor& x, const Tensor& weight, const Tensor& dy,
                       const LinearGradients&);
};

// An undefined `bias` means none. Throws if the widths do not fit.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {});

}  // namespace weft
