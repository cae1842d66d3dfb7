// CUDA kernel of rotary.h. A thread takes a pair of features of one position of one sequence, and
// rotates it in all heads: one sine and cosine in f64, some 60 operations, for H of them. 8 bytes
// an element in f32: bound by memory bandwidth (estimated).
#include "ops/rotary/kernels.h"
#include "runtime/cuda/loops.h"
#include "runtime/cuda/words.h"

namespace weft {
namespace {

template <class S>
struct RotatePair {
  using T = Accumulator<S>;
  Rotation rotation;
  View<const S, 4> x;
  View<S, 4> y;

  __device__ void operator()(i64 unit) const {
    const i64 pairs = x.size(3) / 2, i = unit % pairs;
    const i64 n = unit / pairs % x.size(1), b = unit / pairs / x.size(1);
    const double share = static_cast<double>(i) / static_cast<double>(pairs);
    const double theta = rotation.sign * exp(-share * rotation.log_base);
    const double angle = static_cast<double>(rotation.first + n) * theta;
    const T c = static_cast<T>(cos(angle)), s = static_cast<T>(sin(angle));
    for (i64 h = 0; h < x.size(2); ++h) {
      S pair[2];
      load_columns<2>(row_of(x, b, n, h), 2 * i, pair);
      const T even = widen(pair[0]), odd = widen(pair[1]);
      const S turned[2] = {convert<S>(c * even - s * odd), convert<S>(s * even + c * odd)};
      store_columns<2>(turned, row_of(y, b, n, h), 2 * i);
    }
  }
};

}  // namespace

template <class Device, class S>
void RotaryKernels<Device, S>::rotate(const Device& device, const Rotation& rotation,
                                      View<const S, 4> x, View<S, 4> y) {
  for_elements("rotary", device, x.size(0) * x.size(1) * (x.size(3) / 2),
               RotatePair<S>{rotation, x, y});
}

template struct RotaryKernels<Cuda, float>;
template struct RotaryKernels<Cuda, double>;
template struct RotaryKernels<Cuda, bf16>;

}  // namespace weft
