// Gather: elements along an axis, by index.
//
//     y[o, i, j] = x[o, index[o, i, j], j]
//     dx[o, v, j] = Σ_{i: index[o, i, j] = v} dy[o, i, j]
//
// o stands for the axes before the gathered one, j for those after it. index is i64 and has as many
// axes as x. Its axes other than the gathered one have their size in x, or 1, and are then
// broadcast: labels [N, 1] take rows [N, d] of means [C, d] along axis 0.
//
// Each sum is accumulated in f64 in the order of i by one thread, so that the bits are the same for
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

// y has the shape of x, but the gathered axis has the size of index; axis −1 is the last one.
// Throws, with the position and the index, if an index is not in 0 … x.size(axis) − 1. On a CUDA
// device such an index gives NaN instead, and no gradient: training steps are captured and never
// wait, so the host cannot read the indices, and a kernel cannot throw. (Choices that the caller
// gives a mechanism are checked on both devices: ops/attention/mechanism.h.)
Variable gather(const Variable& x, int axis, const Tensor& index);

}  // namespace weft
