#include "ops/conv1d/conv1d.h"
#include "ops/pointwise/kernels.h"
#include "ops/reduce/reduce.h"
#include "runtime/cuda/device.h"
#include "runtime/matmul.h"

namespace weft {
namespace {

Tensor matrix(const Tensor& weight, i64 k) {  // W_k
  return weight.slice(0, k, k + 1).reshape({weight.size(1), weight.size(2)});
}

// to[:, t + ahead] (+)= from[:, t + back] w, where both are inside; one of the two offsets is 0.
void add_shifted(const Tensor& from, i64 back, const Tensor& w, const Tensor& to, i64 ahead,
                 bool add) {
  const i64 N = from.size(1), shift = back + ahead;
  if (shift == 0) return matmul_into(as_rows(from), w, as_rows(to), add);
  if (shift >= N) return;
  matmul_into(from.slice(1, back, N - ahead), w, to.slice(1, ahead, N - back), true);
}

// Every sequence preceded by `count` rows of zeros, all as one matrix.
Tensor behind_zeros(const Tensor& x, i64 count) {
  if (count == 0) return as_rows(x);
  const i64 N = x.size(1);
  const Tensor padded = Tensor::zeros({x.size(0), count + N, x.size(2)}, x.dtype(), x.device());
  padded.slice(1, count, count + N).copy_from(x);
  return as_rows(padded);
}

}  // namespace

template <class Device, class T>
void CausalConv1dKernels<Device, T>::forward(const Device& device, const CausalConv1d::Saved& saved,
                                             const Tensor& bias, bool relu, const Tensor& y) {
  const i64 W = saved.weight.size(0);
  y.copy_from(bias.expand(y.shape()));
  for (i64 shift = 0; shift < W; ++shift) {
    add_shifted(saved.x, 0, matrix(saved.weight, W - 1 - shift), y, shift, true);
  }
  if (relu)
    PointwiseKernels<Device, T>::value(device, unary_number<Relu>, y.count(), y.data<T>(),
                                       y.data<T>());
}

template <class Device, class T>
std::array<Tensor, 3> CausalConv1dKernels<Device, T>::backward(const Device& device,
                                                               const CausalConv1d::Saved& saved,
                                                               const Tensor& dy) {
  const i64 W = saved.weight.size(0);
  Tensor dz = dy;
  if (saved.y.defined()) {
    dz = Tensor::empty_like(dy);
    PointwiseKernels<Device, T>::derivative(device, unary_number<Relu>, dy.count(),
                                            saved.y.data<T>(), dy.data<T>(), dz.data<T>());
  }
  const Tensor dx = Tensor::empty_like(saved.x), dweight = Tensor::empty_like(saved.weight);
  // A row of one, and the row of the other `shift` later, are of the same sequence or zeros.
  const Tensor padded_x = behind_zeros(saved.x, W - 1), padded_dz = behind_zeros(dz, W - 1);
  const i64 rows = padded_x.size(0);
  for (i64 shift = 0; shift < W; ++shift) {
    const i64 k = W - 1 - shift, known = std::max<i64>(0, rows - shift);
    add_shifted(dz, shift, matrix(saved.weight, k).transpose(0, 1), dx, 0, shift > 0);
    matmul_into(padded_x.slice(0, 0, known).transpose(0, 1), padded_dz.slice(0, rows - known, rows),
                matrix(dweight, k));
  }
  return {dx, dweight, sum_over(as_rows(dz), 0, 0)};
}

template struct CausalConv1dKernels<Cuda, float>;
template struct CausalConv1dKernels<Cuda, double>;

}  // namespace weft
