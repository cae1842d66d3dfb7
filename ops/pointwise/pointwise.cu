// CUDA kernels of the pointwise ops: a function of every element (runtime/cuda/loops.h). 8 bytes an
// element with one input in f32 and 12 with two: the bandwidth of the memory is the limit.
//
// Up to 30 operations, in f32. Blocks of 256 threads on a multiprocessor: 8, all of its threads
// (32 registers), and 6 where one of two inputs is broadcast (38). Estimated, not measured.
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
  __device__ void operator()(std::int64_t i) const {
    const BroadcastLoops::Place place = loops.of(i);
    c[i] = F{}(a[place.a], b[place.b]);
  }
};

// Where both operands run through all their elements in order, or one of them stands still.
template <class F, class T>
struct PlainBinary {
  std::int64_t step_a, step_b;
  const T* a;
  const T* b;
  T* c;
  __device__ void operator()(std::int64_t i) const { c[i] = F{}(a[i * step_a], b[i * step_b]); }
};

template <class T>
struct Scaled {
  T factor;
  const T* x;
  T* y;
  __device__ void operator()(std::int64_t i) const { y[i] = x[i] * factor; }
};

template <class F, class T>
struct Value {
  const T* x;
  T* y;
  __device__ void operator()(std::int64_t i) const { y[i] = F::value(x[i]); }
};

template <class F, class T>
struct Derivative {
  const T* kept;
  const T* dy;
  T* dx;
  __device__ void operator()(std::int64_t i) const { dx[i] = dy[i] * F::derivative(kept[i]); }
};

}  // namespace

template <class F, class T>
void binary(const Cuda& device, const BroadcastLoops& loops, std::int64_t count, const T* a,
            const T* b, T* c) {
  if (loops.rank == 1) {
    const PlainBinary<F, T> plain{loops.a[0], loops.b[0], a, b, c};
    return for_elements("pointwise", device, count, plain);
  }
  for_elements("pointwise", device, count, Binary<F, T>{loops, a, b, c});
}

template <class T>
void scale(const Cuda& device, std::int64_t count, double factor, const T* x, T* y) {
  for_elements("scale", device, count, Scaled<T>{static_cast<T>(factor), x, y});
}

template <class F, class T>
void pointwise(const Cuda& device, std::int64_t count, const T* x, T* y) {
  for_elements(F::name, device, count, Value<F, T>{x, y});
}

template <class F, class T>
void pointwise_backward(const Cuda& device, std::int64_t count, const T* kept, const T* dy, T* dx) {
  for_elements(F::name, device, count, Derivative<F, T>{kept, dy, dx});
}

#define WEFT_BINARY(F, T)                                                                         \
  template void binary<F>(const Cuda&, const BroadcastLoops&, std::int64_t, const T*, const T*, T*);
#define WEFT_POINTWISE(F, T)                                                      \
  template void pointwise<F>(const Cuda&, std::int64_t, const T*, T*);            \
  template void pointwise_backward<F>(const Cuda&, std::int64_t, const T*, const T*, T*);
#define WEFT_ALL_POINTWISE(T)                                                                    \
  WEFT_BINARY(Plus, T)                                                                           \
  WEFT_BINARY(Minus, T)                                                                          \
  WEFT_BINARY(Times, T)                                                                          \
  WEFT_BINARY(Over, T)                                                                           \
  WEFT_BINARY(Larger, T)                                                                         \
  WEFT_BINARY(Below, T)                                                                          \
  WEFT_BINARY(NotBelow, T)                                                                       \
  template void scale(const Cuda&, std::int64_t, double, const T*, T*);                          \
  WEFT_POINTWISE(Relu, T)                                                                        \
  WEFT_POINTWISE(Sigmoid, T)                                                                     \
  WEFT_POINTWISE(Tanh, T)                                                                        \
  WEFT_POINTWISE(Exp, T)                                                                         \
  WEFT_POINTWISE(Log, T)                                                                         \
  WEFT_POINTWISE(Sqrt, T)                                                                        \
  WEFT_POINTWISE(Silu, T)                                                                        \
  WEFT_POINTWISE(Gelu, T)                                                                        \
  WEFT_POINTWISE(GeluErf, T)
WEFT_ALL_POINTWISE(float)
WEFT_ALL_POINTWISE(double)

}  // namespace weft
