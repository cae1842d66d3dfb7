// Cast: the same numbers in another element type, f32, f64 or bf16.
//
//     y = x rounded to the type             dx = dy rounded to the type of x
//
// The derivative of rounding, 0 almost everywhere, is taken as 1. Only the type of x is saved.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct Cast {
  static constexpr const char* name = "cast";
  static constexpr bool takes_bf16 = true;
  DType dtype;
  struct Saved {
    DType from;
  };
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& dy) const;
};

// x itself if it is of that type already. Rounds to the nearest number of the type, ties to even,
// f64 to bf16 through f32; overflow gives infinity.
Variable cast(const Variable& x, DType dtype);

}  // namespace weft
