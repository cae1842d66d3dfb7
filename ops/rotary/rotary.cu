// CUDA kernel of rotary.h. A thread takes a pair of features of one position of one sequence, and
// rotates it in all heads: one sine and cosine in f64, some 60 operations, for H of them. 8 bytes
// an element in f32: bound by memory bandwidth (estimated).
#include "ops/rotary/kernels.h"
#include "runtime/cuda/loops.h"
#include "runtime/cuda/words.h"

namespace weft {
namespace {

template <class T>
struct RotatePair {
  Rotation rotation;
  View<const T, 4> x;
  View<T, 4> y;

  __device__ void operator()(i64 unit) const {
    const i64 pairs = x.size(3) / 2, i = unit % pairs;
    const i64 n = unit / pairs % x.size(1), b = unit / pairs / x.size(1);
    const double share = static_cast<double>(i) / static_cast<double>(pairs);
    const double theta = rotation.sign * exp(-share * rotation.log_base);
    const double angle = static_cast<double>(rotation.first + n) * theta;
    const T c = static_cast<T>(cos(angle)), s = static_cast<T>(sin(angle));
    for (i64 h = 0; h < x.size(2); ++h) {
      T pair[2];
      load_columns<2>(row_of(x, b, n, h), 2 * i, pair);
      const T turned[2] = {c * pair[0] - s * pair[1], s * pair[0] + c * pair[1]};
      store_columns<2>(turned, row_of(y, b, n, h), 2 * i);
    }
  }
};

}  // namespace

template <class Device, class T>
void RotaryKernels<Device, T>::rotate(const Device& device, const Rotation& rotation,
                                      View<const T, 4> x, View<T, 4> y) {
  for_elements("rotary", device, x.size(0) * x.size(1) * (x.size(3) / 2),
               RotatePair<T>{rotation, x, y});
}

template struct RotaryKernels<Cuda, float>;
template struct RotaryKernels<Cuda, double>;

}  // namespace weft
