#include "ops/cumulative_sum/cumulative_sum.h"

#include "ops/cumulative_sum/kernels.h"
#include "runtime/dispatch.h"

namespace weft {

namespace {

// From the last position to the first.
template <class T>
View<T, 3> backwards(View<T, 3> x) {
  x.data += (x.size(1) - 1) * x.stride(1);
  x.strides[1] = -x.strides[1];
  return x;
}

Tensor summed(const Tensor& x, int axis, bool reverse) {
  const Tensor y = Tensor::empty_like(x);
  if (x.count() == 0) return y;
  const Shape three = around_axis(x.shape(), axis);
  const Tensor from = x.reshaped(three), to = y.reshape(three);
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    const View<const T, 3> terms = from.view<const T, 3>();
    const View<T, 3> sums = to.view<T, 3>();
    using Kernels = CumulativeSumKernels<decltype(device), T>;
    Kernels::sum(device, reverse ? backwards(terms) : terms, reverse ? backwards(sums) : sums);
  });
  return y;
}

}  // namespace

Tensor CumulativeSum::forward(Saved&, const Tensor& x) const {
  require_real(name, x);
  return summed(x, axis, reverse);
}

Tensor CumulativeSum::backward(const Saved&, const Tensor& dy) const {
  return summed(dy, axis, !reverse);
}

Variable cumulative_sum(const Variable& x, int axis, bool reverse) {
  return apply(CumulativeSum{wrapped_axis(CumulativeSum::name, x.shape(), axis), reverse}, x);
}

}  // namespace weft
