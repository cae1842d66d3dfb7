// Cumulative sums along an axis, inclusive.
//
//     y_i = Σ_{l <= i} x_l            dx_i = Σ_{l >= i} dy_l
//     y_i = Σ_{l >= i} x_l            dx_i = Σ_{l <= i} dy_l          with `reverse`
//
// The gradient is the cumulative sum in the other direction, and nothing is saved. The sums of f32
// are accumulated in f64 and rounded once each. A NaN reaches the sums that contain it, and no
// others.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct CumulativeSum {
  static constexpr const char* name = "cumulative_sum";
  int axis;
  bool reverse;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& dy) const;
};

// y in the shape of x; axis −1 is the last one. Throws if x has no such axis.
Variable cumulative_sum(const Variable& x, int axis, bool reverse = false);

}  // namespace weft
