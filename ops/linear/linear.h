// Linear: an affine map of the last axis.
//
//     y = x W + b                     x [.., n], W [n, m], b [m] (or none), y [.., m]
//
// Backward, with the leading axes flattened to rows:
//     dx = dy Wᵀ,    dW = xᵀ dy,    db = Σ_rows dy
//
// Saved: x and W, as handles.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct Linear {
  static constexpr const char* name = "linear";
  struct Saved {
    Tensor x, weight;
    bool biased = false;
  };
  Tensor forward(Saved&, const Tensor& x, const Tensor& weight, const Tensor& bias) const;
  std::array<Tensor, 3> backward(const Saved&, Wants, const Tensor& dy) const;
};

// An undefined `bias` stands for none. Throws where the widths do not fit.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {});

}  // namespace weft
