#include "ops/linear/linear.h"
#include "ops/reduce/reduce.h"
#include "runtime/cuda/device.h"
#include "runtime/matmul.h"

namespace weft {
namespace {

// [.., n] as rows.
Tensor rows_of(const Tensor& x, std::int64_t rows) { return x.reshape({rows, x.size(-1)}); }

}  // namespace

template <class T>
void linear_forward(const Cuda&, const Tensor& x, const Tensor& weight, const Tensor& bias,
                    const Tensor& y) {
  const std::int64_t rows = x.count() / weight.size(0);
  if (bias.defined()) y.copy_from(bias.expand(y.shape()));
  matmul_into(rows_of(x, rows), weight, rows_of(y, rows), bias.defined());
}

template <class T>
void linear_backward(const Cuda&, const Tensor& x, const Tensor& weight, const Tensor& dy,
                     const LinearGradients& gradients) {
  const std::int64_t rows = x.count() / weight.size(0);
  const Tensor gradient = rows_of(dy, rows);
  if (gradients.x.defined()) {
    matmul_into(gradient, weight.transpose(0, 1), rows_of(gradients.x, rows));
  }
  if (gradients.weight.defined()) {
    matmul_into(rows_of(x, rows).transpose(0, 1), gradient, gradients.weight);
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
