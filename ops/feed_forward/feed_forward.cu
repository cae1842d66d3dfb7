// CUDA kernels of the feed-forward map between its products. 12 bytes an element forward and 16
// backward in f32, at one exponential: the bandwidth of the memory is the limit. Estimated, not measured.
//
// 8 blocks of 256 threads on a multiprocessor: all of its threads (32 registers).
#include "ops/feed_forward/kernels.h"
#include "ops/pointwise/functions.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

template <class Phi, class T>
struct BiasAndActivationRow {
  std::int64_t h;
  const T* bias;
  T *z, *f;

  template <class Team>
  __device__ void operator()(const Team& team, std::int64_t row) const {
    for (std::int64_t j = team.rank(); j < h; j += Team::threads) {
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

  __device__ void operator()(std::int64_t i) const {
    const ValueAndSlope<T> phi = Phi::both(z[i]);
    f[i] = phi.value;
    df[i] *= phi.slope;
  }
};

}  // namespace

template <class Phi, class T>
void bias_and_activation(const Cuda& device, std::int64_t rows, std::int64_t h, const T* bias, T* z,
                         T* f) {
  for_rows("feed_forward", device, rows, h, BiasAndActivationRow<Phi, T>{h, bias, z, f});
}

template <class Phi, class T>
void activation_gradient(const Cuda& device, std::int64_t count, const T* z, T* f, T* df) {
  for_elements("feed_forward", device, count, ActivationGradient<Phi, T>{z, f, df});
}

#define WEFT_FEED_FORWARD(Phi, T)                                                                \
  template void bias_and_activation<Phi>(const Cuda&, std::int64_t, std::int64_t, const T*, T*,  \
                                         T*);                                                    \
  template void activation_gradient<Phi>(const Cuda&, std::int64_t, const T*, T*, T*);
WEFT_FEED_FORWARD(Gelu, float)
WEFT_FEED_FORWARD(Gelu, double)
WEFT_FEED_FORWARD(Relu, float)
WEFT_FEED_FORWARD(Relu, double)

}  // namespace weft
