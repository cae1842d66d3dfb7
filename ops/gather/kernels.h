// The kernels of gather.h over three axes [outer, n, inner]. `index` has the sizes of y, with
// stride 0 where it is broadcast.
#pragma once

#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

template <class Device, class T>
struct GatherKernels {
  // y[o, i, j] = x[o, index[o, i, j], j]
  static void forward(const Device&, View<const T, 3> x, View<const i64, 3> index, View<T, 3> y);
  // dx[o, index[o, i, j], j] += dy[o, i, j], in the order of i.
  static void backward(const Device&, View<const T, 3> dy, View<const i64, 3> index,
                       View<double, 3> dx);
};

}  // namespace weft
