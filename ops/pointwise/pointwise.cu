// CUDA kernels of the pointwise ops: a function of every element (runtime/cuda/loops.h). 8 bytes an
// element with one input in f32 and 12 with two, half of that in bf16, with up to 30 operations:
// bound by memory bandwidth (estimated).
#include "ops/pointwise/kernels.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

template <class F, class S>
struct Binary {
  BroadcastLoops loops;
  const S* a;
  const S* b;
  S* c;
  __device__ void operator()(i64 i) const {
    const BroadcastLoops::Place place = loops.of(i);
    c[i] = convert<S>(F{}(widen(a[place.a]), widen(b[place.b])));
  }
};

// For operands that are read in order, or of which one is a single element.
template <class F, class S>
struct PlainBinary {
  i64 step_a, step_b;
  const S* a;
  const S* b;
  S* c;
  __device__ void operator()(i64 i) const {
    c[i] = convert<S>(F{}(widen(a[i * step_a]), widen(b[i * step_b])));
  }
};

template <class S>
struct Scaled {
  Accumulator<S> factor;
  const S* x;
  S* y;
  __device__ void operator()(i64 i) const { y[i] = convert<S>(widen(x[i]) * factor); }
};

template <class F, class S>
struct Value {
  const S* x;
  S* y;
  __device__ void operator()(i64 i) const { y[i] = convert<S>(F::value(widen(x[i]))); }
};

template <class F, class S>
struct Derivative {
  const S* kept;
  const S* dy;
  S* dx;
  __device__ void operator()(i64 i) const {
    dx[i] = convert<S>(widen(dy[i]) * slope<F, S>(widen(kept[i])));
  }
};

}  // namespace

template <class Device, class S>
void PointwiseKernels<Device, S>::binary(const Device& device, int function,
                                         const BroadcastLoops& loops, i64 count, const S* a,
                                         const S* b, S* c) {
  BinaryFunctions::with(function, [&]<class F>(F) {
    if (loops.rank == 1) {
      const PlainBinary<F, S> plain{loops.a[0], loops.b[0], a, b, c};
      return for_elements("pointwise", device, count, plain);
    }
    for_elements("pointwise", device, count, Binary<F, S>{loops, a, b, c});
  });
}

template <class Device, class S>
void PointwiseKernels<Device, S>::scale(const Device& device, i64 count, double factor, const S* x,
                                        S* y) {
  for_elements("scale", device, count, Scaled<S>{static_cast<Accumulator<S>>(factor), x, y});
}

template <class Device, class S>
void PointwiseKernels<Device, S>::value(const Device& device, int function, i64 count, const S* x,
                                        S* y) {
  UnaryFunctions::with(function, [&]<class F>(F) {
    for_elements(F::name, device, count, Value<F, S>{x, y});
  });
}

template <class Device, class S>
void PointwiseKernels<Device, S>::derivative(const Device& device, int function, i64 count,
                                             const S* kept, const S* dy, S* dx) {
  UnaryFunctions::with(function, [&]<class F>(F) {
    for_elements(F::name, device, count, Derivative<F, S>{kept, dy, dx});
  });
}

template struct PointwiseKernels<Cuda, float>;
template struct PointwiseKernels<Cuda, double>;
template struct PointwiseKernels<Cuda, bf16>;

}  // namespace weft
