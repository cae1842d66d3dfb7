#include "runtime/arithmetic.h"

#include "runtime/dispatch.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr std::int64_t grain = 1 << 16;  // elements that one piece of parallel work adds

template <class T>
void add(const Cpu&, const T* a, const T* b, T* c, std::int64_t count) {
  parallel_ranges(count, grain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) c[i] = a[i] + b[i];
  });
}

void check(const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape() && a.dtype() == b.dtype(), "add: {} {} and {} {} differ", a.shape(),
          name_of(a.dtype()), b.shape(), name_of(b.dtype()));
}

}  // namespace

Tensor added(const Tensor& a, const Tensor& b) {
  check(a, b);
  const Tensor left = a.packed(), right = b.packed();
  Tensor sum = Tensor::empty(a.shape(), a.dtype(), a.device());
  dispatch(sum, [&](auto device, auto type) {
    using T = decltype(type);
    add(device, left.data<T>(), right.data<T>(), sum.data<T>(), sum.count());
  });
  return sum;
}

void add_into(const Tensor& target, const Tensor& value) {
  check(target, value);
  if (!target.contiguous()) return target.copy_from(added(target, value));
  const Tensor right = value.packed();
  dispatch(target, [&](auto device, auto type) {
    using T = decltype(type);
    add(device, target.data<T>(), right.data<T>(), target.data<T>(), target.count());
  });
}

}  // namespace weft
