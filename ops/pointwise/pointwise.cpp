#include "ops/pointwise/pointwise.h"

#include "ops/pointwise/kernels.h"
#include "ops/reduce/reduce.h"
#include "runtime/dispatch.h"
#include "runtime/pack.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr std::int64_t grain = 1 << 15;  // elements that one piece of parallel work computes

BroadcastLoops merged_loops(const Tensor& a, const Tensor& b) {  // both expanded to the result's shape
  BroadcastLoops loops;
  int& rank = loops.rank;
  for (int axis = a.rank() - 1; axis >= 0; --axis) {
    const std::int64_t size = a.size(axis);
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

// Calls f(offset in a, offset in b, offset in the result, length) for each run of the innermost
// axis within begin … end−1.
template <class F>
void each_run(const BroadcastLoops& loops, std::int64_t begin, std::int64_t end, const F& f) {
  while (begin < end) {
    const auto [a, b] = loops.of(begin);
    const std::int64_t length = std::min(loops.size[0] - begin % loops.size[0], end - begin);
    f(a, b, begin, length);
    begin += length;
  }
}

}  // namespace

template <class F, class T>
void binary(const Cpu&, const BroadcastLoops& loops, std::int64_t count, const T* a, const T* b,
            T* c) {
  const F f;
  const std::int64_t step_a = loops.a[0], step_b = loops.b[0];
  const auto compute = [=](const T* x, const T* y, T* z, std::int64_t length) {
    if (step_a == 1 && step_b == 1) {
      map<T>(length, z, f, x, y);
    } else if (step_a == 1 && step_b == 0) {
      const auto with_y = [&f, same = Pack<T>(*y)](Pack<T> v) { return f(v, same); };
      map<T>(length, z, with_y, x);
    } else if (step_a == 0 && step_b == 1) {
      const auto with_x = [&f, same = Pack<T>(*x)](Pack<T> v) { return f(same, v); };
      map<T>(length, z, with_x, y);
    } else {
      for (std::int64_t i = 0; i < length; ++i) z[i] = f(x[i * step_a], y[i * step_b]);
    }
  };
  parallel_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
    const auto run = [&](std::int64_t at_a, std::int64_t at_b, std::int64_t at_c,
                         std::int64_t length) { compute(a + at_a, b + at_b, c + at_c, length); };
    each_run(loops, begin, end, run);
  });
}

namespace {

template <class F>
Tensor broadcast(const char* name, const Tensor& a, const Tensor& b) {
  require(a.dtype() == b.dtype(), "{}: wanted one element type, got {} {} and {} {}", name,
          name_of(a.dtype()), a.shape(), name_of(b.dtype()), b.shape());
  require_real(name, a);
  const Shape shape = broadcast_shape(name, a.shape(), b.shape());
  const BroadcastLoops loops = merged_loops(a.expand(shape), b.expand(shape));
  Tensor c = Tensor::empty(shape, a.dtype(), a.device());
  dispatch(c, [&](auto device, auto type) {
    using T = decltype(type);
    binary<F, T>(device, loops, c.count(), a.data<T>(), b.data<T>(), c.data<T>());
  });
  return c;
}

// y = f(x, …), all row-major and of one length.
template <class T, class F, class... X>
void unary(std::int64_t count, T* y, const F& f, const X*... x) {
  parallel_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
    map<T>(end - begin, y + begin, f, (x + begin)...);
  });
}

}  // namespace

template <class T>
void scale(const Cpu&, std::int64_t count, double factor, const T* x, T* y) {
  unary(count, y, [by = Pack<T>(factor)](Pack<T> v) { return v * by; }, x);
}

template <class F, class T>
void pointwise(const Cpu&, std::int64_t count, const T* x, T* y) {
  unary(count, y, [](Pack<T> v) { return F::value(v); }, x);
}

template <class F, class T>
void pointwise_backward(const Cpu&, std::int64_t count, const T* kept, const T* dy, T* dx) {
  unary(count, dx, [](Pack<T> d, Pack<T> x) { return d * F::derivative(x); }, dy, kept);
}

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
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    scale<T>(device, x.count(), factor, row_major.data<T>(), y.data<T>());
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
    return sum_to(broadcast<Times>(name, dc, factor), shape);
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
    return sum_to(broadcast<Times>(name, dc, slope), shape);
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
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    pointwise<F, T>(device, x.count(), row_major.data<T>(), y.data<T>());
  });
  saved.kept = F::from_result ? y : row_major;
  return y;
}

template <class F>
Tensor Pointwise<F>::backward(const Saved& saved, const Tensor& dy) const {
  const Tensor &kept = saved.kept, row_major = dy.packed();
  Tensor dx = Tensor::empty_like(dy);
  dispatch(dy, [&](auto device, auto type) {
    using T = decltype(type);
    pointwise_backward<F, T>(device, dy.count(), kept.data<T>(), row_major.data<T>(), dx.data<T>());
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
Variable sigmoid(const Variable& x) { return apply(Pointwise<Sigmoid>{}, x); }
Variable tanh(const Variable& x) { return apply(Pointwise<Tanh>{}, x); }
Variable exp(const Variable& x) { return apply(Pointwise<Exp>{}, x); }
Variable log(const Variable& x) { return apply(Pointwise<Log>{}, x); }
Variable sqrt(const Variable& x) { return apply(Pointwise<Sqrt>{}, x); }
Variable silu(const Variable& x) { return apply(Pointwise<Silu>{}, x); }
Variable gelu(const Variable& x) { return apply(Pointwise<Gelu>{}, x); }
Variable gelu_erf(const Variable& x) { return apply(Pointwise<GeluErf>{}, x); }

}  // namespace weft
