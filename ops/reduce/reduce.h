// Sums and means, over everything or over one axis.
//
//     s = Σ_i x_i            dx_i = ds
//     m = (1/n) Σ_i x_i      dx_i = dm / n
//
// The sums of f32 and bf16 are accumulated in f64: blocks of a size given by the shape, added in
// order, rounded once. Only the shape of x is saved; the gradient is a view that repeats ds along
// the axes.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct Sum {
  static constexpr const char* name = "sum";
  static constexpr bool takes_bf16 = true;
  int first, last;  // the axes summed over
  struct Saved {
    Shape shape;
  };
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& ds) const;
};

Variable sum(const Variable& x);            // over everything; shape []
Variable sum(const Variable& x, int axis);  // removes the axis; −1 is the last one
Variable mean(const Variable& x);           // as above; throw if there is nothing to average
Variable mean(const Variable& x, int axis);

// Without gradient. sum_over sums over axes first … last and removes them. sum_to sums over the
// axes along which `shape` is broadcast to that of x: the gradient of a broadcast; x itself if
// there are none.
Tensor sum_over(const Tensor& x, int first, int last);
void sum_into(const Tensor& x, int first, int last, const Tensor& s);  // the same, into packed s
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace weft
