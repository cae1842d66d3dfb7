#include "ops/gather/gather.h"

#include "ops/gather/kernels.h"
#include "runtime/dispatch.h"

namespace weft {

namespace {

// Throws if an index is not in 0 … n − 1 and the host can see that without waiting.
void check_index(const Tensor& index, const Shape& x, int axis) {
  if (index.device() != Device{}) return;
  const Tensor row_major = index.packed();
  const i64* const numbers = row_major.data<i64>();
  for (i64 p = 0; p < index.count(); ++p) {
    require(0 <= numbers[p] && numbers[p] < x[axis],
            "gather: the index at position {} of {} is {}, but axis {} of {} has {} positions", p,
            index.shape(), numbers[p], axis, x, x[axis]);
  }
}

// The index for the kernels: broadcast to the shape of y.
Tensor over_all(const Tensor& index, const Shape& y, int axis) {
  return index.expand(y).reshaped(around_axis(y, axis));
}

}  // namespace

Tensor Gather::forward(Saved& saved, const Tensor& x, const Tensor& index) const {
  require_real(name, x);
  require(index.dtype() == DType::i64, "gather: wanted an index in i64, got {}",
          name_of(index.dtype()));
  Shape shape = x.shape();
  bool fits = index.rank() == x.rank();
  for (int other = 0; fits && other < x.rank(); ++other) {
    fits = other == axis || index.size(other) == x.size(other) || index.size(other) == 1;
  }
  require(fits,
          "gather: an index {} does not fit {}: except for axis {}, its axes must be those or 1",
          index.shape(), x.shape(), axis);
  check_index(index, shape, axis);
  shape[axis] = index.size(axis);
  saved = {index, x.shape()};
  const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  if (y.count() == 0) return y;
  const Tensor from = x.reshaped(around_axis(x.shape(), axis)), at = over_all(index, shape, axis);
  const Tensor to = y.reshape(around_axis(shape, axis));
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    GatherKernels<decltype(device), T>::forward(device, from.view<T, 3>(), at.view<i64, 3>(),
                                                to.view<T, 3>());
  });
  return y;
}

std::array<Tensor, 2> Gather::backward(const Saved& saved, const Tensor& dy) const {
  const Shape three = around_axis(saved.shape, axis);
  const Tensor sums = Tensor::zeros(three, DType::f64, dy.device());
  if (dy.count() > 0) {
    const Tensor from = dy.reshaped(around_axis(dy.shape(), axis));
    const Tensor at = over_all(saved.index, dy.shape(), axis);
    dispatch(dy, [&](auto device, auto type) {
      using T = decltype(type);
      GatherKernels<decltype(device), T>::backward(device, from.view<T, 3>(), at.view<i64, 3>(),
                                                   sums.view<double, 3>());
    });
  }
  return {sums.to(dy.dtype()).reshape(saved.shape), Tensor{}};
}

Variable gather(const Variable& x, int axis, const Tensor& index) {
  return apply(Gather{wrapped_axis(Gather::name, x.shape(), axis)}, x, Variable(index));
}

}  // namespace weft
