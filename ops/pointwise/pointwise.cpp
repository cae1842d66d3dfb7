#include "ops/pointwise/pointwise.h"

#include "ops/pointwise/kernels.h"
#include "ops/reduce/reduce.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

// Of tensors that are expanded to the result's shape.
BroadcastLoops merged_loops(const Tensor& a, const Tensor& b) {
  BroadcastLoops loops;
  int& rank = loops.rank;
  for (int axis = a.rank() - 1; axis >= 0; --axis) {
    const i64 size = a.size(axis);
    if (size == 1) continue;
    if (rank > 0 && a.stride(axis) == loops.a[rank - 1] * loops.size[rank - 1] &&
        b.stride(axis) == loops.b[rank - 1] * loops.size[rank - 1]) {
      loops.size[rank - 1] *= size;
      continue;
    }
    loops.size[rank] = size;
    loops.a[rank] = a.stride(axis);
    loops.b[rank++] = b.stride(axis);
  }
  if (rank == 0) loops.size[rank++] = 1;
  return loops;
}

template <class F>
Tensor broadcast(const char* name, const Tensor& a, const Tensor& b) {
  require(a.dtype() == b.dtype(), "{}: wanted one element type, got {} {} and {} {}", name,
          name_of(a.dtype()), a.shape(), name_of(b.dtype()), b.shape());
  require_real(name, a);
  const Shape shape = broadcast_shape(name, a.shape(), b.shape());
  const BroadcastLoops loops = merged_loops(a.expand(shape), b.expand(shape));
  Tensor c = Tensor::empty(shape, a.dtype(), a.device());
  dispatch_floating(c, [&](auto device, auto type) {
    using T = decltype(type);
    PointwiseKernels<decltype(device), T>::binary(device, binary_number<F>, loops, c.count(),
                                                  a.data<T>(), b.data<T>(), c.data<T>());
  });
  return c;
}

// f(a, b) summed over the axes along which `shape` is broadcast, rounded after that.
template <class F>
Tensor broadcast_sum(const char* name, const Tensor& a, const Tensor& b, const Shape& shape) {
  const DType type = a.dtype();
  const DType product = a.shape() == shape ? type : accumulator_of(type);
  return sum_to(broadcast<F>(name, a.to(product), b.to(product)), shape).to(type);
}

}  // namespace

Tensor Add::forward(Saved& saved, const Tensor& a, const Tensor& b) const {
  saved = {a.shape(), b.shape()};
  return broadcast<Plus>(name, a, b);
}

std::array<Tensor, 2> Add::backward(const Saved& saved, Wants wants, const Tensor& dc) const {
  return {wants[0] ? sum_to(dc, saved.a) : Tensor{}, wants[1] ? sum_to(dc, saved.b) : Tensor{}};
}

namespace {

Tensor scaled(const Tensor& x, double factor) {
  const Tensor row_major = x.packed();
  Tensor y = Tensor::empty_like(x);
  dispatch_floating(x, [&](auto device, auto type) {
    using T = decltype(type);
    PointwiseKernels<decltype(device), T>::scale(device, x.count(), factor, row_major.data<T>(),
                                                 y.data<T>());
  });
  return y;
}

}  // namespace

Tensor Sub::forward(Saved& saved, const Tensor& a, const Tensor& b) const {
  saved = {a.shape(), b.shape()};
  return broadcast<Minus>(name, a, b);
}

std::array<Tensor, 2> Sub::backward(const Saved& saved, Wants wants, const Tensor& dc) const {
  return {wants[0] ? sum_to(dc, saved.a) : Tensor{},
          wants[1] ? scaled(sum_to(dc, saved.b), -1) : Tensor{}};
}

Tensor Mul::forward(Saved& saved, const Tensor& a, const Tensor& b) const {
  saved = {a, b};
  return broadcast<Times>(name, a, b);
}

std::array<Tensor, 2> Mul::backward(const Saved& saved, Wants wants, const Tensor& dc) const {
  const auto gradient = [&](const Tensor& factor, const Shape& shape) {
    return broadcast_sum<Times>(name, dc, factor, shape);
  };
  return {wants[0] ? gradient(saved.b, saved.a.shape()) : Tensor{},
          wants[1] ? gradient(saved.a, saved.b.shape()) : Tensor{}};
}

Tensor Div::forward(Saved& saved, const Tensor& a, const Tensor& b) const {
  saved = {a.shape(), b, broadcast<Over>(name, a, b)};
  return saved.c;
}

std::array<Tensor, 2> Div::backward(const Saved& saved, Wants wants, const Tensor& dc) const {
  const Tensor da = broadcast<Over>(name, dc, saved.b);  // in the shape of c
  const auto by_b = [&] { return sum_to(broadcast<Times>(name, da, saved.c), saved.b.shape()); };
  return {wants[0] ? sum_to(da, saved.a) : Tensor{}, wants[1] ? scaled(by_b(), -1) : Tensor{}};
}

Tensor Maximum::forward(Saved& saved, const Tensor& a, const Tensor& b) const {
  saved = {a, b};
  return broadcast<Larger>(name, a, b);
}

std::array<Tensor, 2> Maximum::backward(const Saved& saved, Wants wants, const Tensor& dc) const {
  const auto gradient = [&](const Tensor& slope, const Shape& shape) {
    return broadcast_sum<Times>(name, dc, slope, shape);
  };
  const auto& [a, b] = saved;
  return {wants[0] ? gradient(broadcast<NotBelow>(name, a, b), a.shape()) : Tensor{},
          wants[1] ? gradient(broadcast<Below>(name, a, b), b.shape()) : Tensor{}};
}

Tensor Scale::forward(Saved&, const Tensor& x) const {
  require_real(name, x);
  return scaled(x, factor);
}

Tensor Scale::backward(const Saved&, const Tensor& dy) const { return scaled(dy, factor); }

template <class F>
Tensor Pointwise<F>::forward(Saved& saved, const Tensor& x) const {
  require_real(name, x);
  const Tensor row_major = x.packed();
  Tensor y = Tensor::empty_like(x);
  dispatch_floating(x, [&](auto device, auto type) {
    using T = decltype(type);
    PointwiseKernels<decltype(device), T>::value(device, unary_number<F>, x.count(),
                                                 row_major.data<T>(), y.data<T>());
    saved.kept = keeps_result<F, T> ? y : row_major;
  });
  return y;
}

template <class F>
Tensor Pointwise<F>::backward(const Saved& saved, const Tensor& dy) const {
  const Tensor &kept = saved.kept, row_major = dy.packed();
  Tensor dx = Tensor::empty_like(dy);
  dispatch_floating(dy, [&](auto device, auto type) {
    using T = decltype(type);
    PointwiseKernels<decltype(device), T>::derivative(
        device, unary_number<F>, dy.count(), kept.data<T>(), row_major.data<T>(), dx.data<T>());
  });
  return dx;
}

Variable add(const Variable& a, const Variable& b) { return apply(Add{}, a, b); }
Variable sub(const Variable& a, const Variable& b) { return apply(Sub{}, a, b); }
Variable mul(const Variable& a, const Variable& b) { return apply(Mul{}, a, b); }
Variable div(const Variable& a, const Variable& b) { return apply(Div{}, a, b); }
Variable maximum(const Variable& a, const Variable& b) { return apply(Maximum{}, a, b); }
Variable scale(const Variable& x, double factor) { return apply(Scale{factor}, x); }
Variable relu(const Variable& x) { return apply(Pointwise<Relu>{}, x); }
Variable leaky_relu(const Variable& x) { return apply(Pointwise<LeakyRelu>{}, x); }
Variable elu(const Variable& x) { return apply(Pointwise<Elu>{}, x); }
Variable sigmoid(const Variable& x) { return apply(Pointwise<Sigmoid>{}, x); }
Variable tanh(const Variable& x) { return apply(Pointwise<Tanh>{}, x); }
Variable exp(const Variable& x) { return apply(Pointwise<Exp>{}, x); }
Variable log(const Variable& x) { return apply(Pointwise<Log>{}, x); }
Variable sqrt(const Variable& x) { return apply(Pointwise<Sqrt>{}, x); }
Variable silu(const Variable& x) { return apply(Pointwise<Silu>{}, x); }
Variable gelu(const Variable& x) { return apply(Pointwise<Gelu>{}, x); }
Variable gelu_erf(const Variable& x) { return apply(Pointwise<GeluErf>{}, x); }
Variable normal_cdf(const Variable& x) { return apply(Pointwise<NormalCdf>{}, x); }

}  // namespace weft
