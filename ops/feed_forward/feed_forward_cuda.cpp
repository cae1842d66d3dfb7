#include "ops/feed_forward/feed_forward.h"
#include "ops/feed_forward/kernels.h"
#include "ops/reduce/reduce.h"
#include "runtime/cuda/device.h"
#include "runtime/matmul.h"

namespace weft {

template <class Device, class S>
void FeedForwardKernels<Device, S>::forward(const Device& device, Activation activation,
                                            const Saved& saved, const Tensor& bias1,
                                            const Tensor& bias2, const Tensor& y) {
  using T = Accumulator<S>;
  const i64 h = saved.weight1.size(1), rows = saved.x.rows();
  const Tensor f = Tensor::empty({rows, h}, y.dtype(), y.device());
  const Tensor z = as_rows(saved.z);
  const Tensor product =
      std::is_same_v<S, T> ? z : Tensor::empty(z.shape(), dtype_of<T>, z.device());
  matmul_into(as_rows(saved.x), saved.weight1, product);
  ActivationKernels<Device, S>::forward(device, activation, rows, h, product.data<T>(),
                                        bias1.data<T>(), z.data<S>(), f.data<S>());
  y.copy_from(bias2.expand(y.shape()));
  matmul_into(f, saved.weight2, as_rows(y), true);
}

template <class Device, class S>
std::array<Tensor, 5> FeedForwardKernels<Device, S>::backward(const Device& device,
                                                              Activation activation,
                                                              const Saved& saved,
                                                              const Tensor& dy) {
  using T = Accumulator<S>;
  const i64 h = saved.weight1.size(1), rows = saved.x.rows();
  const auto product = [&](const Tensor& a, const Tensor& b) {  // not rounded
    const Tensor c = Tensor::empty({a.size(0), b.size(1)}, dtype_of<T>, a.device());
    matmul_into(a, b, c);
    return c;
  };
  const Tensor x = as_rows(saved.x), gradient = as_rows(dy);
  const Tensor df = product(gradient, saved.weight2.transpose(0, 1));  // then dz
  const Tensor f = Tensor::empty({rows, h}, dy.dtype(), dy.device());
  const Tensor dz = std::is_same_v<S, T> ? df : Tensor::empty_like(f);
  ActivationKernels<Device, S>::backward(device, activation, rows * h, saved.z.data<S>(),
                                         df.data<T>(), f.data<S>(), dz.data<S>());
  const Tensor dx = matmul(dz, saved.weight1.transpose(0, 1)).reshape(saved.x.shape());
  return {dx, product(x.transpose(0, 1), dz), sum_over(df, 0, 0),
          product(f.transpose(0, 1), gradient), sum_over(gradient.to(dtype_of<T>), 0, 0)};
}

template struct FeedForwardKernels<Cuda, float>;
template struct FeedForwardKernels<Cuda, double>;
template struct FeedForwardKernels<Cuda, bf16>;

}  // namespace weft
