// Matrix product, as an op over runtime/matmul.h.
//
//     c = a b,    da = dc bᵀ,    db = aᵀ dc
//
// a [.., m, k]; b [.., k, n] with the same leading axes, or [k, n] for all of them: then db is
// summed over the batch, which is one product over all its rows.
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

// Throws where the sizes do not fit.
Variable matmul(const Variable& a, const Variable& b);

}  // namespace weft
