// The kernels of cumulative_sum.h: y[o, i, j] = Σ_{l <= i} x[o, l, j], gathered in f64. A view with
// a negative stride sums the other way.
#pragma once

#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

template <class T>
void cumulative_sum(const Cpu&, View<const T, 3> x, View<T, 3> y);
template <class T>
void cumulative_sum(const Cuda&, View<const T, 3> x, View<T, 3> y);

}  // namespace weft
