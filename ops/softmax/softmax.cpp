#include "ops/softmax/softmax.h"

#include "ops/softmax/kernels.h"
#include "ops/softmax/rows.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr std::int64_t grain = 1 << 14;  // elements that one piece of parallel work computes

// Calls f(row) for every row of V elements.
template <class F>
void each_row(std::int64_t rows, std::int64_t V, const F& f) {
  const std::int64_t together = std::max<std::int64_t>(1, grain / std::max<std::int64_t>(1, V));
  parallel_ranges(rows, together, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row);
  });
}

}  // namespace

template <class T>
void softmax(const Cpu&, std::int64_t rows, std::int64_t V, const T* x, T* y) {
  each_row(rows, V, [=](std::int64_t row) {
    T* const to = y + row * V;
    const double z = row_sum(x + row * V, V, to).z;
    const auto divided = [inverse = Pack<T>(z == 0 ? 0 : 1 / z)](Pack<T> e) { return e * inverse; };
    map<T>(V, to, divided, to);
  });
}

template <class T>
void softmax_backward(const Cpu&, std::int64_t rows, std::int64_t V, const T* y, const T* dy,
                      T* dx) {
  each_row(rows, V, [=](std::int64_t row) {
    const T *const ys = y + row * V, *const dys = dy + row * V;
    const Pack<T> inner(simd::dot(ys, dys, V));
    const auto gradient = [=](Pack<T> p, Pack<T> d) { return p * (d - inner); };
    map<T>(V, dx + row * V, gradient, ys, dys);
  });
}

template <class T>
void log_sum_exp(const Cpu&, std::int64_t rows, std::int64_t V, const T* x, T* lse) {
  each_row(rows, V, [=](std::int64_t row) {
    lse[row] = static_cast<T>(row_sum(x + row * V, V).log_sum_exp());
  });
}

template <class T>
void log_sum_exp_backward(const Cpu&, std::int64_t rows, std::int64_t V, const T* x, const T* lse,
                          const T* dlse, T* dx) {
  each_row(rows, V, [=](std::int64_t row) {
    const bool empty = lse[row] == -std::numeric_limits<T>::infinity();
    const Pack<T> shift(empty ? 0 : lse[row]), factor(dlse[row]);
    const auto gradient = [=](Pack<T> v) { return factor * exp(v - shift); };
    map<T>(V, dx + row * V, gradient, x + row * V);
  });
}

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
      softmax<T>(device, x.count() / x.size(-1), x.size(-1), row_major.data<T>(), y.data<T>());
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
    softmax_backward<T>(device, dy.count() / dy.size(-1), dy.size(-1), saved.y.data<T>(),
                        row_major.data<T>(), dx.data<T>());
  });
  return dx;
}

Tensor LogSumExp::forward(Saved& saved, const Tensor& x) const {
  check(name, x);
  Shape shape;
  for (int axis = 0; axis + 1 < x.rank(); ++axis) shape.push_back(x.size(axis));
  saved = {x.packed(), Tensor::empty(shape, x.dtype(), x.device())};
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    log_sum_exp<T>(device, shape.count(), x.size(-1), saved.x.data<T>(), saved.lse.data<T>());
  });
  return saved.lse;
}

Tensor LogSumExp::backward(const Saved& saved, const Tensor& dlse) const {
  const Tensor row_major = dlse.packed();
  const Tensor dx = Tensor::empty_like(saved.x);
  dispatch(dx, [&](auto device, auto type) {
    using T = decltype(type);
    log_sum_exp_backward<T>(device, dlse.count(), dx.size(-1), saved.x.data<T>(),
                            saved.lse.data<T>(), row_major.data<T>(), dx.data<T>());
  });
  return dx;
}

Variable softmax(const Variable& x) { return apply(Softmax{}, x); }
Variable log_sum_exp(const Variable& x) { return apply(LogSumExp{}, x); }

}  // namespace weft
