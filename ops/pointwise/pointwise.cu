// CUDA kernels of the pointwise ops: a function of every element (runtime/cuda/loops.h). 8 bytes an
// element with one input in f32 and 12 with two, with up to 30 operations: bound by memory
// bandwidth (estimated).
#include "ops/pointwise/kernels.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

template <class F, class T>
struct Binary {
  BroadcastLoops loops;
  const T* a;
  const T* b;
  T* c;
  __device__ void operator()(i64 i) const {
    const BroadcastLoops::Place place = loops.of(i);
    c[i] = F{}(a[place.a], b[place.b]);
  }
};

// For operands that are read in order, or of which one is a single element.
template <class F, class T>
struct PlainBinary {
  i64 step_a, step_b;
  const T* a;
  const T* b;
  T* c;
  __device__ void operator()(i64 i) const { c[i] = F{}(a[i * step_a], b[i * step_b]); }
};

template <class T>
struct Scaled {
  T factor;
  const T* x;
  T* y;
  __device__ void operator()(i64 i) const { y[i] = x[i] * factor; }
};

template <class F, class T>
struct Value {
  const T* x;
  T* y;
  __device__ void operator()(i64 i) const { y[i] = F::value(x[i]); }
};

template <class F, class T>
struct Derivative {
  const T* kept;
  const T* dy;
  T* dx;
  __device__ void operator()(i64 i) const { dx[i] = dy[i] * F::derivative(kept[i]); }
};

}  // namespace

template <class Device, class T>
void PointwiseKernels<Device, T>::binary(const Device& device, int function,
                                         const BroadcastLoops& loops, i64 count, const T* a,
                                         const T* b, T* c) {
  BinaryFunctions::with(function, [&]<class F>(F) {
    if (loops.rank == 1) {
      const PlainBinary<F, T> plain{loops.a[0], loops.b[0], a, b, c};
      return for_elements("pointwise", device, count, plain);
    }
    for_elements("pointwise", device, count, Binary<F, T>{loops, a, b, c});
  });
}

template <class Device, class T>
void PointwiseKernels<Device, T>::scale(const Device& device, i64 count, double factor, const T* x,
                                        T* y) {
  for_elements("scale", device, count, Scaled<T>{static_cast<T>(factor), x, y});
}

template <class Device, class T>
void PointwiseKernels<Device, T>::value(const Device& device, int function, i64 count, const T* x,
                                        T* y) {
  UnaryFunctions::with(function, [&]<class F>(F) {
    for_elements(F::name, device, count, Value<F, T>{x, y});
  });
}

template <class Device, class T>
void PointwiseKernels<Device, T>::derivative(const Device& device, int function, i64 count,
                                             const T* kept, const T* dy, T* dx) {
  UnaryFunctions::with(function, [&]<class F>(F) {
    for_elements(F::name, device, count, Derivative<F, T>{kept, dy, dx});
  });
}

template struct PointwiseKernels<Cuda, float>;
template struct PointwiseKernels<Cuda, double>;

}  // namespace weft
