// CUDA kernels of the feed-forward map between its products. 12 bytes an element forward and 16
// backward in f32, with one exponential: bound by memory bandwidth (estimated).
#include "ops/feed_forward/kernels.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

template <class Phi, class S>
struct BiasAndActivationRow {
  using T = Accumulator<S>;
  i64 h;
  const T *product, *bias;
  S *z, *f;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    for (i64 j = team.rank(); j < h; j += Team::threads) {
      const T sum = product[row * h + j] + bias[j];
      z[row * h + j] = convert<S>(sum);
      f[row * h + j] = convert<S>(Phi::value(sum));
    }
  }
};

template <class Phi, class S>
struct ActivationGradient {
  using T = Accumulator<S>;
  const S* z;
  T* df;
  S *f, *dz;

  __device__ void operator()(i64 i) const {
    const ValueAndSlope<T> phi = Phi::both(widen(z[i]));
    f[i] = convert<S>(phi.value);
    const T inner = df[i] * phi.slope;
    df[i] = inner;
    if constexpr (!std::is_same_v<S, T>) dz[i] = convert<S>(inner);
  }
};

}  // namespace

template <class Device, class S>
void ActivationKernels<Device, S>::forward(const Device& device, Activation activation, i64 rows,
                                           i64 h, const T* product, const T* bias, S* z, S* f) {
  with_activation(activation, [&]<class Phi>(Phi) {
    for_rows("feed_forward", device, rows, h, BiasAndActivationRow<Phi, S>{h, product, bias, z, f});
  });
}

template <class Device, class S>
void ActivationKernels<Device, S>::backward(const Device& device, Activation activation, i64 count,
                                            const S* z, T* df, S* f, S* dz) {
  with_activation(activation, [&]<class Phi>(Phi) {
    for_elements("feed_forward", device, count, ActivationGradient<Phi, S>{z, df, f, dz});
  });
}

template struct ActivationKernels<Cuda, float>;
template struct ActivationKernels<Cuda, double>;
template struct ActivationKernels<Cuda, bf16>;

}  // namespace weft
