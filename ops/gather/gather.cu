// CUDA kernels of gather.h. Forward, a thread computes elements of y, with coalesced writes.
// Backward, a thread takes a column (o, j) and walks along the axis, so that there are no
// conflicting writes and the order of the sums is fixed. Bound by memory bandwidth if there are
// enough columns to fill the device, otherwise by memory latency.
#include <limits>

#include "ops/gather/kernels.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

template <class T>
struct GatherElement {
  View<const T, 3> x;
  View<const i64, 3> index;
  View<T, 3> y;

  __device__ void operator()(i64 element) const {
    const i64 j = element % y.size(2), i = element / y.size(2) % y.size(1);
    const i64 o = element / y.size(2) / y.size(1), at = index(o, i, j);
    const bool there = 0 <= at && at < x.size(1);
    y(o, i, j) = there ? x(o, at, j) : std::numeric_limits<T>::quiet_NaN();
  }
};

template <class T>
struct ScatterColumn {
  View<const T, 3> dy;
  View<const i64, 3> index;
  View<double, 3> dx;

  __device__ void operator()(i64 column) const {
    const i64 o = column / dy.size(2), j = column % dy.size(2);
    for (i64 i = 0; i < dy.size(1); ++i) {
      const i64 at = index(o, i, j);
      if (0 <= at && at < dx.size(1)) dx(o, at, j) += static_cast<double>(dy(o, i, j));
    }
  }
};

}  // namespace

template <class Device, class T>
void GatherKernels<Device, T>::forward(const Device& device, View<const T, 3> x,
                                       View<const i64, 3> index, View<T, 3> y) {
  for_elements("gather", device, y.size(0) * y.size(1) * y.size(2), GatherElement<T>{x, index, y});
}

template <class Device, class T>
void GatherKernels<Device, T>::backward(const Device& device, View<const T, 3> dy,
                                        View<const i64, 3> index, View<double, 3> dx) {
  for_elements("gather", device, dy.size(0) * dy.size(2), ScatterColumn<T>{dy, index, dx});
}

template struct GatherKernels<Cuda, float>;
template struct GatherKernels<Cuda, double>;

}  // namespace weft
