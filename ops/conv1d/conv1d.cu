// CUDA kernels of causal convolution beside its products: bound by memory bandwidth.
#include "ops/conv1d/kernels.h"
#include "ops/pointwise/functions.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

// Element i = (r, c) writes all taps of its column: coalesced along c.
template <class T>
struct WindowElement {
  Conv1dWindows of;
  const T* x;
  T* windows;

  __device__ void operator()(i64 i) const {
    const i64 r = i / of.n, c = i - r * of.n, row = of.first + r, t = row % of.N;
    T* const to = windows + r * of.W * of.n + c;
    const bool ahead = of.look == Look::ahead;
    for (i64 k = 0; k < of.W; ++k) {
      const i64 by = of.W - 1 - k;
      const bool inside = ahead ? t + by < of.N : t >= by;
      to[k * of.n] = inside ? x[(ahead ? row + by : row - by) * of.n + c] : T(0);
    }
  }
};

template <class T>
struct AddBias {
  const T* bias;
  T* y;
  i64 m;
  bool relu;

  __device__ void operator()(i64 i) const {
    const T z = y[i] + bias[i % m];
    y[i] = relu ? Relu::value(z) : z;
  }
};

}  // namespace

template <class Device, class T>
void Conv1dKernels<Device, T>::windows(const Device& device, const Conv1dWindows& of, const T* x,
                                       T* windows) {
  for_elements("causal_conv1d", device, of.rows * of.n, WindowElement<T>{of, x, windows});
}

template <class Device, class T>
void Conv1dKernels<Device, T>::add_bias(const Device& device, i64 count, i64 m, const T* bias,
                                        bool relu, T* y) {
  for_elements("causal_conv1d", device, count, AddBias<T>{bias, y, m, relu});
}

template struct Conv1dKernels<Cuda, float>;
template struct Conv1dKernels<Cuda, double>;

}  // namespace weft
