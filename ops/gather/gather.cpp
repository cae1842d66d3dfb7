#include "ops/gather/gather.h"

#include <algorithm>

#include "ops/gather/kernels.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 grain = 1 << 15;  // elements that one piece of parallel work moves
constexpr i64 strip = 64;       // columns of which one piece of work has the sums

}  // namespace

template <class T>
void gather_elements(const Cpu&, View<const T, 3> x, View<const i64, 3> index, View<T, 3> y) {
  const i64 m = y.size(1), inner = y.size(2);
  const i64 together = std::max<i64>(1, grain / inner);
  parallel_ranges(y.size(0) * m, together, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      const i64 o = row / m, i = row % m;
      for (i64 j = 0; j < inner; ++j) y(o, i, j) = x(o, index(o, i, j), j);
    }
  });
}

template <class T>
void scatter_elements(const Cpu&, View<const T, 3> dy, View<const i64, 3> index,
                      View<double, 3> dx) {
  const i64 m = dy.size(1), inner = dy.size(2), strips = (inner + strip - 1) / strip;
  const i64 together = std::max<i64>(1, grain / (m * std::min(inner, strip)));
  parallel_ranges(dy.size(0) * strips, together, [&](i64 begin, i64 end) {
    for (i64 piece = begin; piece < end; ++piece) {
      const i64 o = piece / strips, first = piece % strips * strip;
      const i64 last = std::min(first + strip, inner);
      for (i64 i = 0; i < m; ++i) {
        for (i64 j = first; j < last; ++j) dx(o, index(o, i, j), j) += double(dy(o, i, j));
      }
    }
  });
}

namespace {

// Throws where the host can see, without waiting, that a number is not in 0 … n − 1.
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

// The index as the kernels see it: repeated to the shape of y.
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
  require(fits, "gather: an index {} does not fit {}: but for axis {}, its axes must be those or 1",
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
    gather_elements<T>(device, from.view<T, 3>(), at.view<i64, 3>(), to.view<T, 3>());
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
      scatter_elements<T>(device, from.view<T, 3>(), at.view<i64, 3>(), sums.view<double, 3>());
    });
  }
  return {sums.to(dy.dtype()).reshape(saved.shape), Tensor{}};
}

Variable gather(const Variable& x, int axis, const Tensor& index) {
  return apply(Gather{wrapped_axis(Gather::name, x.shape(), axis)}, x, Variable(index));
}

}  // namespace weft
