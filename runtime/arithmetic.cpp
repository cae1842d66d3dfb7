#include "runtime/arithmetic.h"

#include "runtime/dispatch.h"
#include "runtime/elements.h"

namespace weft {
namespace {

void check(const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape() && a.dtype() == b.dtype(), "add: {} {} and {} {} differ",
          a.shape(), name_of(a.dtype()), b.shape(), name_of(b.dtype()));
}

}  // namespace

Tensor added(const Tensor& a, const Tensor& b) {
  check(a, b);
  const Tensor left = a.packed(), right = b.packed();
  Tensor sum = Tensor::empty_like(a);
  dispatch_floating(sum, [&](auto device, auto type) {
    using T = decltype(type);
    AddKernels<decltype(device), T>::add(device, sum.count(), left.data<T>(), right.data<T>(),
                                         sum.data<T>());
  });
  return sum;
}

void add_into(const Tensor& target, const Tensor& value) {
  check(target, value);
  if (!target.contiguous()) return target.copy_from(added(target, value));
  const Tensor right = value.packed();
  dispatch_floating(target, [&](auto device, auto type) {
    using T = decltype(type);
    AddKernels<decltype(device), T>::add(device, target.count(), target.data<T>(), right.data<T>(),
                                         target.data<T>());
  });
}

}  // namespace weft
