// Gather: elements along an axis, by number.
//
//     y[o, i, j] = x[o, index[o, i, j], j]
//     dx[o, v, j] = Σ_{i: index[o, i, j] = v} dy[o, i, j]
//
// o stands for the axes before the one that is gathered, j for those behind it. index is i64 and
// has as many axes as x. Those other than the gathered one have their size in x, or 1, and then
// repeat: labels [N, 1] take rows [N, d] of means [C, d] along axis 0.
//
// Each sum is gathered in f64 in the order of i by one thread, so that the bits are the same for
// any number of threads.
//
// Saved: index, and the shape of x.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct Gather {
  static constexpr const char* name = "gather";
  int axis;
  struct Saved {
    Tensor index;
    Shape shape;
  };
  Tensor forward(Saved&, const Tensor& x, const Tensor& index) const;
  std::array<Tensor, 2> backward(const Saved&, const Tensor& dy) const;
};

// y in the shape of x, but for the gathered axis, which has the size of index; axis −1 is the last
// one. Throws, with the position and the number, where a number is not in 0 … x.size(axis) − 1. On
// a CUDA device such a number gives NaN instead, and no gradient: training steps gather, are
// captured and never wait, so that the host cannot look at the numbers and a kernel cannot throw.
// (Choices of a mechanism that are handed in are checked on both devices: ops/attention/mechanism.h.)
Variable gather(const Variable& x, int axis, const Tensor& index);

}  // namespace weft
