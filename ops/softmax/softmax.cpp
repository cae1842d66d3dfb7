#include "ops/softmax/softmax.h"

#include "ops/softmax/kernels.h"
#include "runtime/dispatch.h"

namespace weft {

namespace {

void check(const char* name, const Tensor& x) {
  require_real(name, x);
  require(x.rank() >= 1, "{}: wanted at least one axis, got {}", name, x.shape());
}

}  // namespace

Tensor Softmax::forward(Saved& saved, const Tensor& x) const {
  check(name, x);
  const Tensor row_major = x.packed();
  const Tensor y = Tensor::empty_like(x);
  if (x.count() > 0) {
    dispatch(x, [&](auto device, auto type) {
      using T = decltype(type);
      SoftmaxKernels<decltype(device), T>::forward(device, x.count() / x.size(-1), x.size(-1),
                                                   row_major.data<T>(), y.data<T>());
    });
  }
  saved.y = y;
  return y;
}

Tensor Softmax::backward(const Saved& saved, const Tensor& dy) const {
  const Tensor row_major = dy.packed();
  const Tensor dx = Tensor::empty_like(dy);
  if (dy.count() == 0) return dx;
  dispatch(dy, [&](auto device, auto type) {
    using T = decltype(type);
    SoftmaxKernels<decltype(device), T>::backward(device, dy.count() / dy.size(-1), dy.size(-1),
                                                  saved.y.data<T>(), row_major.data<T>(),
                                                  dx.data<T>());
  });
  return dx;
}

Tensor LogSumExp::forward(Saved& saved, const Tensor& x) const {
  check(name, x);
  Shape shape;
  for (int axis = 0; axis + 1 < x.rank(); ++axis) shape.push_back(x.size(axis));
  saved = {x.packed(), Tensor::empty({2, shape.count()}, x.dtype(), x.device())};
  const Tensor lse = Tensor::empty(shape, x.dtype(), x.device());
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    LogSumExpKernels<decltype(device), T>::forward(
        device, shape.count(), x.size(-1), saved.x.data<T>(), lse.data<T>(), saved.sums.data<T>());
  });
  return lse;
}

Tensor LogSumExp::backward(const Saved& saved, const Tensor& dlse) const {
  const Tensor row_major = dlse.packed();
  const Tensor dx = Tensor::empty_like(saved.x);
  dispatch(dx, [&](auto device, auto type) {
    using T = decltype(type);
    LogSumExpKernels<decltype(device), T>::backward(device, dlse.count(), dx.size(-1),
                                                    saved.x.data<T>(), saved.sums.data<T>(),
                                                    row_major.data<T>(), dx.data<T>());
  });
  return dx;
}

Variable softmax(const Variable& x) { return apply(Softmax{}, x); }
Variable log_sum_exp(const Variable& x) { return apply(LogSumExp{}, x); }

}  // namespace weft
