// Sums and means, over everything or over one axis.
//
//     s = Σ_i x_i            dx_i = ds
//     m = (1/n) Σ_i x_i      dx_i = dm / n
//
// The sums of f32 are gathered in f64: blocks cut by shape, added in their order, rounded once.
// Nothing is saved but the shape of x; the gradient is a view that repeats ds along the axes.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct Sum {
  static constexpr const char* name = "sum";
  int first, last;  // the axes that go
  struct Saved {
    Shape shape;
  };
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& ds) const;
};

Variable sum(const Variable& x);            // over everything; shape []
Variable sum(const Variable& x, int axis);  // the axis goes; −1 is the last one
Variable mean(const Variable& x);           // as above; throw where there is nothing to average
Variable mean(const Variable& x, int axis);

// Without gradient. sum_over sums over axes first … last, which go. sum_to sums over the axes that
// repeat where `shape` is broadcast to that of x: the gradient of a broadcast; x itself where none
// does.
Tensor sum_over(const Tensor& x, int first, int last);
void sum_into(const Tensor& x, int first, int last, const Tensor& s);  // the same, into packed s
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace weft
