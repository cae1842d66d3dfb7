// cuBLAS takes no matrix with overlapping rows, so that windows are copied (im2col), some rows of
// all sequences at a time, and each sum of conv1d.h is one product a part.
#include "ops/conv1d/conv1d.h"
#include "ops/conv1d/kernels.h"
#include "ops/pointwise/kernels.h"
#include "ops/reduce/reduce.h"
#include "runtime/cuda/device.h"
#include "runtime/matmul.h"

namespace weft {
namespace {

constexpr i64 most_numbers = i64{1} << 24;  // of a part's windows

// Calls f(windows, first, end) for parts of the rows of x [B, N, n], at least once; windows is
// [end − first, W n].
template <class T, class F>
void each_part(const Cuda& device, const Tensor& x, i64 W, Look look, const F& f) {
  const i64 N = x.size(1), n = x.size(2), rows = x.size(0) * N;
  const i64 part = std::max<i64>(1, std::min(rows, most_numbers / std::max<i64>(1, W * n)));
  const Tensor memory = Tensor::empty({part, W * n}, x.dtype(), x.device());
  i64 first = 0;
  do {
    const i64 end = std::min(rows, first + part);
    const Tensor windows = memory.slice(0, 0, end - first);
    Conv1dKernels<Cuda, T>::windows(device, {N, n, W, look, first, end - first}, x.data<T>(),
                                    windows.data<T>());
    f(windows, first, end);
    first = end;
  } while (first < rows);
}

}  // namespace

template <class Device, class T>
void CausalConv1dKernels<Device, T>::forward(const Device& device, const CausalConv1d::Saved& saved,
                                             const Tensor& bias, bool relu, const Tensor& y) {
  const i64 W = saved.weight.size(0), m = saved.weight.size(2);
  const Tensor weight = saved.weight.reshape({W * saved.weight.size(1), m});
  each_part<T>(device, saved.x, W, Look::back, [&](const Tensor& windows, i64 first, i64 end) {
    matmul_into(windows, weight, as_rows(y).slice(0, first, end));
  });
  Conv1dKernels<Device, T>::add_bias(device, y.count(), m, bias.data<T>(), relu, y.data<T>());
}

template <class Device, class T>
std::array<Tensor, 3> CausalConv1dKernels<Device, T>::backward(const Device& device,
                                                               const CausalConv1d::Saved& saved,
                                                               const Tensor& dy) {
  const i64 W = saved.weight.size(0), n = saved.weight.size(1), m = saved.weight.size(2);
  Tensor dz = dy;
  if (saved.y.defined()) {
    dz = Tensor::empty_like(dy);
    PointwiseKernels<Device, T>::derivative(device, unary_number<Relu>, dy.count(),
                                            saved.y.data<T>(), dy.data<T>(), dz.data<T>());
  }
  const Tensor dx = Tensor::empty_like(saved.x), dweight = Tensor::empty_like(saved.weight);
  const Tensor turned = saved.weight.transpose(1, 2).clone().reshape({W * m, n});  // [k, o, i]
  each_part<T>(device, dz, W, Look::ahead, [&](const Tensor& windows, i64 first, i64 end) {
    matmul_into(windows, turned, as_rows(dx).slice(0, first, end));
  });
  const Tensor joint = dweight.reshape({W * n, m});
  each_part<T>(device, saved.x, W, Look::back, [&](const Tensor& windows, i64 first, i64 end) {
    matmul_into(windows.transpose(0, 1), as_rows(dz).slice(0, first, end), joint, first > 0);
  });
  return {dx, dweight, sum_over(as_rows(dz), 0, 0)};
}

template struct CausalConv1dKernels<Cuda, float>;
template struct CausalConv1dKernels<Cuda, double>;

}  // namespace weft
