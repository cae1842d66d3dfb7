#include <algorithm>

#include "ops/pointwise/kernels.h"
#include "runtime/pack.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 grain = 1 << 15;  // elements that one task computes

// Calls f(offset in a, offset in b, offset in the result, length) for each run of the innermost
// axis within begin … end−1.
template <class F>
void each_run(const BroadcastLoops& loops, i64 begin, i64 end, const F& f) {
  while (begin < end) {
    const auto [a, b] = loops.of(begin);
    const i64 length = std::min(loops.size[0] - begin % loops.size[0], end - begin);
    f(a, b, begin, length);
    begin += length;
  }
}

template <class F, class T>
void each_pair(const BroadcastLoops& loops, i64 count, const T* a, const T* b, T* c) {
  const F f;
  const i64 step_a = loops.a[0], step_b = loops.b[0];
  const auto compute = [=](const T* x, const T* y, T* z, i64 length) {
    if (step_a == 1 && step_b == 1) {
      map<T>(length, z, f, x, y);
    } else if (step_a == 1 && step_b == 0) {
      const auto with_y = [&f, same = Pack<T>(*y)](Pack<T> v) { return f(v, same); };
      map<T>(length, z, with_y, x);
    } else if (step_a == 0 && step_b == 1) {
      const auto with_x = [&f, same = Pack<T>(*x)](Pack<T> v) { return f(same, v); };
      map<T>(length, z, with_x, y);
    } else {
      for (i64 i = 0; i < length; ++i) z[i] = f(x[i * step_a], y[i * step_b]);
    }
  };
  parallel_ranges(count, grain, [&](i64 begin, i64 end) {
    const auto run = [&](i64 at_a, i64 at_b, i64 at_c, i64 length) {
      compute(a + at_a, b + at_b, c + at_c, length);
    };
    each_run(loops, begin, end, run);
  });
}

// y = f(x, …), all row-major and of one length.
template <class T, class F, class... X>
void unary(i64 count, T* y, const F& f, const X*... x) {
  parallel_ranges(count, grain,
                  [&](i64 begin, i64 end) { map<T>(end - begin, y + begin, f, (x + begin)...); });
}

}  // namespace

template <class Device, class T>
void PointwiseKernels<Device, T>::binary(const Device&, int function, const BroadcastLoops& loops,
                                         i64 count, const T* a, const T* b, T* c) {
  BinaryFunctions::with(function, [&]<class F>(F) { each_pair<F>(loops, count, a, b, c); });
}

template <class Device, class T>
void PointwiseKernels<Device, T>::scale(const Device&, i64 count, double factor, const T* x, T* y) {
  unary(
      count, y, [by = Pack<T>(factor)](Pack<T> v) { return v * by; }, x);
}

template <class Device, class T>
void PointwiseKernels<Device, T>::value(const Device&, int function, i64 count, const T* x, T* y) {
  UnaryFunctions::with(function, [&]<class F>(F) {
    unary(
        count, y, [](Pack<T> v) { return F::value(v); }, x);
  });
}

template <class Device, class T>
void PointwiseKernels<Device, T>::derivative(const Device&, int function, i64 count, const T* kept,
                                             const T* dy, T* dx) {
  UnaryFunctions::with(function, [&]<class F>(F) {
    unary(
        count, dx, [](Pack<T> d, Pack<T> x) { return d * F::derivative(x); }, dy, kept);
  });
}

template struct PointwiseKernels<Cpu, float>;
template struct PointwiseKernels<Cpu, double>;

}  // namespace weft
