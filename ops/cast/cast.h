// Cast: the same numbers in another element type, f32, f64 or bf16.
//
//     y = x rounded to the type             dx = dy rounded to the type of x
//
// Rounding, which has slope 0 almost everywhere, counts as the identity. Nothing is saved but the
// type of x.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct Cast {
  static constexpr const char* name = "cast";
  DType dtype;
  struct Saved {
    DType from;
  };
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& dy) const;
};

// x itself where it is of that type already. To the nearest number of the type, ties to even, f64
// to bf16 by way of f32; what is too large becomes infinite.
Variable cast(const Variable& x, DType dtype);

}  // namespace weft
