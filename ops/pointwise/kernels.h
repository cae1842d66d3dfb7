// The kernels of pointwise.h.
#pragma once

#include "ops/pointwise/functions.h"
#include "runtime/device.h"
#include "runtime/types.h"

namespace weft {

// The loops over the elements of a result and of two operands that broadcast to it. Axes that are
// contiguous in all three are merged: [B, N, d] with [N, d] becomes [B, N·d].
struct BroadcastLoops {
  static constexpr int most = 8;
  int rank = 0;  // axis 0 is the innermost
  i64 size[most] = {};
  i64 a[most] = {}, b[most] = {};  // strides

  struct Place {
    i64 a, b;  // offsets
  };
  constexpr Place of(i64 element) const {
    Place place{0, 0};
    for (int axis = 0; axis < rank; ++axis) {
      const i64 index = element % size[axis];
      element /= size[axis];
      place.a += index * a[axis];
      place.b += index * b[axis];
    }
    return place;
  }
};

// `function` is an index into the lists of functions.h. f computes with Accumulator<S>.
template <class Device, class S>
struct PointwiseKernels {
  // c = f(a, b), row-major.
  static void binary(const Device&, int function, const BroadcastLoops&, i64 count, const S* a,
                     const S* b, S* c);
  // y = factor · x
  static void scale(const Device&, i64 count, double factor, const S* x, S* y);
  // y = f(x)
  static void value(const Device&, int function, i64 count, const S* x, S* y);
  // dx = dy f'(kept); kept is x or y, as keeps_result says.
  static void derivative(const Device&, int function, i64 count, const S* kept, const S* dy, S* dx);
};

}  // namespace weft
