// Matrix product, as an op over runtime/matmul.h.
//
//     c = a b,    da = dc bᵀ,    db = aᵀ dc
//
// a [.., m, k]; b [.., k, n] with the same leading axes. One of the two may lack the first of them,
// and b all: then it is broadcast, and its gradient is summed over the items; for b [k, n] that is
// one product over all rows.
//
// Saved: a and b, as handles.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct MatrixProduct {
  static constexpr const char* name = "matmul";
  struct Saved {
    Tensor a, b;
  };
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const;
  std::array<Tensor, 2> backward(const Saved&, Wants, const Tensor& dc) const;
};

// Throws if the sizes do not fit.
Variable matmul(const Variable& a, const Variable& b);

}  // namespace weft
