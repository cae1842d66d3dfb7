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

template <class F, class S>
void each_pair(const BroadcastLoops& loops, i64 count, const S* a, const S* b, S* c) {
  using P = Pack<Accumulator<S>>;
  const F f;
  const i64 step_a = loops.a[0], step_b = loops.b[0];
  const auto compute = [=](const S* x, const S* y, S* z, i64 length) {
    if (step_a == 1 && step_b == 1) {
      map(length, z, f, x, y);
    } else if (step_a == 1 && step_b == 0) {
      const auto with_y = [&f, same = P(widen(*y))](P v) { return f(v, same); };
      map(length, z, with_y, x);
    } else if (step_a == 0 && step_b == 1) {
      const auto with_x = [&f, same = P(widen(*x))](P v) { return f(same, v); };
      map(length, z, with_x, y);
    } else {
      for (i64 i = 0; i < length; ++i) {
        z[i] = convert<S>(f(widen(x[i * step_a]), widen(y[i * step_b])));
      }
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
template <class S, class F>
void unary(i64 count, S* y, const F& f, const auto*... x) {
  parallel_ranges(count, grain,
                  [&](i64 begin, i64 end) { map(end - begin, y + begin, f, (x + begin)...); });
}

}  // namespace

template <class Device, class S>
void PointwiseKernels<Device, S>::binary(const Device&, int function, const BroadcastLoops& loops,
                                         i64 count, const S* a, const S* b, S* c) {
  BinaryFunctions::with(function, [&]<class F>(F) { each_pair<F>(loops, count, a, b, c); });
}

template <class Device, class S>
void PointwiseKernels<Device, S>::scale(const Device&, i64 count, double factor, const S* x, S* y) {
  unary(
      count, y, [by = Pack<Accumulator<S>>(factor)](auto v) { return v * by; }, x);
}

template <class Device, class S>
void PointwiseKernels<Device, S>::value(const Device&, int function, i64 count, const S* x, S* y) {
  UnaryFunctions::with(function, [&]<class F>(F) {
    unary(
        count, y, [](auto v) { return F::value(v); }, x);
  });
}

template <class Device, class S>
void PointwiseKernels<Device, S>::derivative(const Device&, int function, i64 count, const S* kept,
                                             const S* dy, S* dx) {
  UnaryFunctions::with(function, [&]<class F>(F) {
    unary(
        count, dx, [](auto d, auto x) { return d * slope<F, S>(x); }, dy, kept);
  });
}

template struct PointwiseKernels<Cpu, float>;
template struct PointwiseKernels<Cpu, double>;
template struct PointwiseKernels<Cpu, bf16>;

}  // namespace weft
