#include "ops/feed_forward/feed_forward.h"
#include "ops/feed_forward/kernels.h"
#include "ops/pointwise/functions.h"
#include "ops/reduce/reduce.h"
#include "runtime/cuda/device.h"
#include "runtime/matmul.h"

namespace weft {
template <class Phi, class T>
void feed_forward_values(const Cuda& device, const FeedForward::Saved& saved, const Tensor& bias1,
                         const Tensor& bias2, const Tensor& y) {
  const std::int64_t h = saved.weight1.size(1), rows = saved.x.rows();
  const Tensor f = Tensor::empty({rows, h}, y.dtype(), y.device());
  matmul_into(as_rows(saved.x), saved.weight1, as_rows(saved.z));
  bias_and_activation<Phi, T>(device, rows, h, bias1.data<T>(), saved.z.data<T>(), f.data<T>());
  y.copy_from(bias2.expand(y.shape()));
  matmul_into(f, saved.weight2, as_rows(y), true);
}

template <class Phi, class T>
std::array<Tensor, 5> feed_forward_gradients(const Cuda& device, const FeedForward::Saved& saved,
                                             const Tensor& dy) {
  const std::int64_t h = saved.weight1.size(1), rows = saved.x.rows();
  const Tensor f = Tensor::empty({rows, h}, dy.dtype(), dy.device());
  const Tensor x = as_rows(saved.x), gradient = as_rows(dy);
  const Tensor dz = matmul(gradient, saved.weight2.transpose(0, 1));  // df at first
  activation_gradient<Phi, T>(device, rows * h, saved.z.data<T>(), f.data<T>(), dz.data<T>());
  const Tensor dx = matmul(dz, saved.weight1.transpose(0, 1)).reshape(saved.x.shape());
  return {dx, matmul(x.transpose(0, 1), dz), sum_over(dz, 0, 0),
          matmul(f.transpose(0, 1), gradient), sum_over(gradient, 0, 0)};
}

#define WEFT_FEED_FORWARD(Phi, T)                                                                \
  template void feed_forward_values<Phi, T>(const Cuda&, const FeedForward::Saved&,              \
                                            const Tensor&, const Tensor&, const Tensor&);        \
  template std::array<Tensor, 5> feed_forward_gradients<Phi, T>(                                 \
      const Cuda&, const FeedForward::Saved&, const Tensor&);
WEFT_FEED_FORWARD(Gelu, float)
WEFT_FEED_FORWARD(Gelu, double)
WEFT_FEED_FORWARD(Relu, float)
WEFT_FEED_FORWARD(Relu, double)

}  // namespace weft
