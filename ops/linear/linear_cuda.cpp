#include "ops/linear/linear.h"
#include "ops/reduce/reduce.h"
#include "runtime/cuda/device.h"
#include "runtime/matmul.h"

namespace weft {

template <class Device, class T>
void LinearKernels<Device, T>::forward(const Device&, const Tensor& x, const Tensor& weight,
                                       const Tensor& bias, const Tensor& y) {
  if (bias.defined()) y.copy_from(bias.expand(y.shape()));
  matmul_into(as_rows(x), weight, as_rows(y), bias.defined());
}

template <class Device, class T>
void LinearKernels<Device, T>::backward(const Device&, const Tensor& x, const Tensor& weight,
                                        const Tensor& dy, const LinearGradients& gradients) {
  const Tensor gradient = as_rows(dy);
  if (gradients.x.defined()) {
    matmul_into(gradient, weight.transpose(0, 1), as_rows(gradients.x));
  }
  if (gradients.weight.defined()) {
    matmul_into(as_rows(x).transpose(0, 1), gradient, gradients.weight);
  }
  if (gradients.bias.defined()) {
    sum_into(gradient.to(gradients.bias.dtype()), 0, 0, gradients.bias);
  }
}

template struct LinearKernels<Cuda, float>;
template struct LinearKernels<Cuda, double>;
template struct LinearKernels<Cuda, bf16>;

}  // namespace weft
