// The kernels of cumulative_sum.h: y[o, i, j] = Σ_{l <= i} x[o, l, j], accumulated in f64. A view
// with a negative stride sums in the other direction.
#pragma once

#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

template <class Device, class T>
struct CumulativeSumKernels {
  static void sum(const Device&, View<const T, 3> x, View<T, 3> y);
};

}  // namespace weft
