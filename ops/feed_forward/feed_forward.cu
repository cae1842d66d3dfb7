// CUDA kernels of the feed-forward map between its products. 12 bytes an element forward and 16
// backward in f32, with one exponential: bound by memory bandwidth (estimated).
#include "ops/feed_forward/kernels.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

template <class Phi, class T>
struct BiasAndActivationRow {
  i64 h;
  const T* bias;
  T *z, *f;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    for (i64 j = team.rank(); j < h; j += Team::threads) {
      const T sum = z[row * h + j] + bias[j];
      z[row * h + j] = sum;
      f[row * h + j] = Phi::value(sum);
    }
  }
};

template <class Phi, class T>
struct ActivationGradient {
  const T* z;
  T *f, *df;

  __device__ void operator()(i64 i) const {
    const ValueAndSlope<T> phi = Phi::both(z[i]);
    f[i] = phi.value;
    df[i] *= phi.slope;
  }
};

}  // namespace

template <class Device, class T>
void ActivationKernels<Device, T>::forward(const Device& device, Activation activation, i64 rows,
                                           i64 h, const T* bias, T* z, T* f) {
  with_activation(activation, [&]<class Phi>(Phi) {
    for_rows("feed_forward", device, rows, h, BiasAndActivationRow<Phi, T>{h, bias, z, f});
  });
}

template <class Device, class T>
void ActivationKernels<Device, T>::backward(const Device& device, Activation activation, i64 count,
                                            const T* z, T* f, T* df) {
  with_activation(activation, [&]<class Phi>(Phi) {
    for_elements("feed_forward", device, count, ActivationGradient<Phi, T>{z, f, df});
  });
}

template struct ActivationKernels<Cuda, float>;
template struct ActivationKernels<Cuda, double>;

}  // namespace weft
