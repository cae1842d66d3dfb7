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

// `function` is an index into the lists of functions.h.
template <class Device, class T>
struct PointwiseKernels {
  // c = f(a, b), row-major.
  static void binary(const Device&, int function, const BroadcastLoops&, i64 count, const T* a,
                     const T* b, T* c);
  // y = factor · x
  static void scale(const Device&, i64 count, double factor, const T* x, T* y);
  // y = f(x)
  static void value(const Device&, int function, i64 count, const T* x, T* y);
  // dx = dy f'(kept); kept is x or y.
  static void derivative(const Device&, int function, i64 count, const T* kept, const T* dy, T* dx);
};

}  // namespace weft
