#include "ops/reduce/reduce.h"

#include "ops/pointwise/pointwise.h"
#include "ops/reduce/kernels.h"
#include "runtime/dispatch.h"

namespace weft {

void sum_into(const Tensor& x, int first, int last, const Tensor& s) {
  SumSizes sizes;
  for (int axis = 0; axis < x.rank(); ++axis) {
    (axis < first ? sizes.outer : axis > last ? sizes.inner : sizes.n) *= x.size(axis);
  }
  if (s.count() == 0) return;
  const Tensor row_major = x.packed();
  dispatch_floating(x, [&](auto device, auto type) {
    using T = decltype(type);
    SumKernels<decltype(device), T>::sum(device, sizes, row_major.data<T>(), s.data<T>());
  });
}

Tensor sum_over(const Tensor& x, int first, int last) {
  require_real("sum", x);
  Shape shape;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (axis < first || axis > last) shape.push_back(x.size(axis));
  }
  Tensor s = Tensor::empty(shape, x.dtype(), x.device());
  sum_into(x, first, last, s);
  return s;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int added = x.rank() - shape.rank();
  const auto repeated = [&](int axis) {
    return axis < added || (shape[axis - added] == 1 && x.size(axis) != 1);
  };
  const auto rest = [&](int end) {
    for (int axis = 0; axis < end; ++axis) {
      if (repeated(axis)) return true;
    }
    return false;
  };
  Tensor s = x;
  for (int last = x.rank() - 1; last >= 0; --last) {
    if (!repeated(last)) continue;
    int first = last;
    while (first > 0 && repeated(first - 1)) --first;
    if (rest(first)) s = s.to(accumulator_of(s.dtype()));
    s = sum_over(s, first, last);
    last = first;
  }
  return s.packed().reshape(shape).to(x.dtype());
}

Tensor Sum::forward(Saved& saved, const Tensor& x) const {
  saved.shape = x.shape();
  return sum_over(x, first, last);
}

Tensor Sum::backward(const Saved& saved, const Tensor& ds) const {
  Shape kept = saved.shape;
  for (int axis = first; axis <= last; ++axis) kept[axis] = 1;
  return ds.packed().reshape(kept).expand(saved.shape);
}

namespace {

Variable averaged(const Variable& x, int first, int last) {
  i64 count = 1;
  for (int axis = first; axis <= last; ++axis) count *= x.size(axis);
  require(count > 0, "mean: there is nothing to average in {}", x.shape());
  return scale(apply(Sum{first, last}, x), 1.0 / static_cast<double>(count));
}

}  // namespace

Variable sum(const Variable& x) { return apply(Sum{0, x.shape().rank() - 1}, x); }

Variable sum(const Variable& x, int axis) {
  axis = wrapped_axis("sum", x.shape(), axis);
  return apply(Sum{axis, axis}, x);
}

Variable mean(const Variable& x) { return averaged(x, 0, x.shape().rank() - 1); }

Variable mean(const Variable& x, int axis) {
  axis = wrapped_axis("mean", x.shape(), axis);
  return averaged(x, axis, axis);
}

}  // namespace weft
