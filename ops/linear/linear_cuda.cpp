#include "ops/linear/linear.h"
#include "ops/reduce/reduce.h"
#include "runtime/cuda/device.h"
#include "runtime/matmul.h"

namespace weft {

template <class T>
void linear_forward(const Cuda&, const Tensor& x, const Tensor& weight, const Tensor& bias,
                    const Tensor& y) {
  if (bias.defined()) y.copy_from(bias.expand(y.shape()));
  matmul_into(as_rows(x), weight, as_rows(y), bias.defined());
}

template <class T>
void linear_backward(const Cuda&, const Tensor& x, const Tensor& weight, const Tensor& dy,
                     const LinearGradients& gradients) {
  const Tensor gradient = as_rows(dy);
  if (gradients.x.defined()) {
    matmul_into(gradient, weight.transpose(0, 1), as_rows(gradients.x));
  }
  if (gradients.weight.defined()) {
    matmul_into(as_rows(x).transpose(0, 1), gradient, gradients.weight);
  }
  if (gradients.bias.defined()) sum_into(gradient, 0, 0, gradients.bias);
}

#define WEFT_LINEAR(T)                                                                           \
  template void linear_forward<T>(const Cuda&, const Tensor&, const Tensor&, const Tensor&,      \
                                  const Tensor&);                                                \
  template void linear_backward<T>(const Cuda&, const Tensor&, const Tensor&, const Tensor&,     \
                                   const LinearGradients&);
WEFT_LINEAR(float)
WEFT_LINEAR(double)

}  // namespace weft
