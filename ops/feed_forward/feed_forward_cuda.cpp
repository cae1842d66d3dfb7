#include "ops/feed_forward/feed_forward.h"
#include "ops/feed_forward/kernels.h"
#include "ops/reduce/reduce.h"
#include "runtime/cuda/device.h"
#include "runtime/matmul.h"

namespace weft {

template <class Device, class T>
void FeedForwardKernels<Device, T>::forward(const Device& device, Activation activation,
                                            const Saved& saved, const Tensor& bias1,
                                            const Tensor& bias2, const Tensor& y) {
  const i64 h = saved.weight1.size(1), rows = saved.x.rows();
  const Tensor f = Tensor::empty({rows, h}, y.dtype(), y.device());
  matmul_into(as_rows(saved.x), saved.weight1, as_rows(saved.z));
  ActivationKernels<Device, T>::forward(device, activation, rows, h, bias1.data<T>(),
                                        saved.z.data<T>(), f.data<T>());
  y.copy_from(bias2.expand(y.shape()));
  matmul_into(f, saved.weight2, as_rows(y), true);
}

template <class Device, class T>
std::array<Tensor, 5> FeedForwardKernels<Device, T>::backward(const Device& device,
                                                              Activation activation,
                                                              const Saved& saved,
                                                              const Tensor& dy) {
  const i64 h = saved.weight1.size(1), rows = saved.x.rows();
  const Tensor f = Tensor::empty({rows, h}, dy.dtype(), dy.device());
  const Tensor x = as_rows(saved.x), gradient = as_rows(dy);
  const Tensor dz = matmul(gradient, saved.weight2.transpose(0, 1));  // df at first
  ActivationKernels<Device, T>::backward(device, activation, rows * h, saved.z.data<T>(),
                                         f.data<T>(), dz.data<T>());
  const Tensor dx = matmul(dz, saved.weight1.transpose(0, 1)).reshape(saved.x.shape());
  return {dx, matmul(x.transpose(0, 1), dz), sum_over(dz, 0, 0),
          matmul(f.transpose(0, 1), gradient), sum_over(gradient, 0, 0)};
}

template struct FeedForwardKernels<Cuda, float>;
template struct FeedForwardKernels<Cuda, double>;

// The products of this device are in f32 still.
namespace {

FeedForward::Saved widened(const FeedForward::Saved& saved) {
  const auto wide = [](const Tensor& x) { return x.to(DType::f32); };
  return {wide(saved.x), wide(saved.weight1), wide(saved.weight2), wide(saved.z)};
}

}  // namespace

template <>
void FeedForwardKernels<Cuda, bf16>::forward(const Cuda& device, Activation activation,
                                             const Saved& saved, const Tensor& bias1,
                                             const Tensor& bias2, const Tensor& y) {
  const Saved wide = widened(saved);
  const Tensor result = Tensor::empty(y.shape(), DType::f32, y.device());
  FeedForwardKernels<Cuda, float>::forward(device, activation, wide, bias1, bias2, result);
  saved.z.copy_from(wide.z);
  y.copy_from(result);
}

template <>
std::array<Tensor, 5> FeedForwardKernels<Cuda, bf16>::backward(const Cuda& device,
                                                               Activation activation,
                                                               const Saved& saved,
                                                               const Tensor& dy) {
  std::array<Tensor, 5> gradients = FeedForwardKernels<Cuda, float>::backward(
      device, activation, widened(saved), dy.to(DType::f32));
  gradients[0] = gradients[0].to(DType::bf16);
  return gradients;
}

}  // namespace weft
