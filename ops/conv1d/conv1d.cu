// CUDA kernels of causal convolution; the equations are in conv1d.h.
//
// cuBLAS takes no matrix with overlapping rows, so that windows are copied (im2col), some rows of
// all sequences at a time, and each sum of conv1d.h is one product a part.
#include "ops/conv1d/conv1d.h"
#include "ops/pointwise/functions.h"
#include "ops/pointwise/kernels.h"
#include "ops/reduce/reduce.h"
#include "runtime/cuda/loops.h"
#include "runtime/matmul.h"

namespace weft {
namespace {

constexpr i64 most_numbers = i64{1} << 24;  // of a part's windows

enum class Look { back, ahead };

// Element i = (r, c) of a part whose first row is `first` writes x[t ∓ (W−1−k), c] at [r, k, c] for
// all k, for the position t of row first + r; 0 outside the sequence.
template <class T, Look look>
struct WindowElement {
  const T* x;
  T* windows;
  i64 first, N, n, W;

  __device__ void operator()(i64 i) const {
    const i64 r = i / n, c = i - r * n, row = first + r, t = row % N;
    T* const to = windows + r * W * n + c;
    for (i64 k = 0; k < W; ++k) {
      const i64 by = W - 1 - k;
      const bool inside = look == Look::back ? t >= by : t + by < N;
      to[k * n] = inside ? x[(look == Look::back ? row - by : row + by) * n + c] : T(0);
    }
  }
};

// Calls f(windows, first, end) for parts of the rows of x [B, N, n], at least once; windows is
// [end − first, W n].
template <Look look, class T, class F>
void each_part(const Cuda& device, const Tensor& x, i64 W, const F& f) {
  const i64 N = x.size(1), n = x.size(2), rows = x.size(0) * N;
  const i64 part = std::max<i64>(1, std::min(rows, most_numbers / std::max<i64>(1, W * n)));
  const Tensor memory = Tensor::empty({part, W * n}, x.dtype(), x.device());
  i64 first = 0;
  do {
    const i64 end = std::min(rows, first + part);
    const Tensor windows = memory.slice(0, 0, end - first);
    for_elements("causal_conv1d", device, (end - first) * n,
                 WindowElement<T, look>{x.data<T>(), windows.data<T>(), first, N, n, W});
    f(windows, first, end);
    first = end;
  } while (first < rows);
}

template <class T, bool relu>
struct AddBias {
  const T* bias;
  T* y;
  i64 m;

  __device__ void operator()(i64 i) const {
    const T z = y[i] + bias[i % m];
    y[i] = relu ? Relu::value(z) : z;
  }
};

}  // namespace

template <class Device, class T>
void CausalConv1dKernels<Device, T>::forward(const Device& device, const CausalConv1d::Saved& saved,
                                             const Tensor& bias, bool relu, const Tensor& y) {
  const i64 W = saved.weight.size(0), m = saved.weight.size(2);
  const Tensor weight = saved.weight.reshape({W * saved.weight.size(1), m});
  each_part<Look::back, T>(device, saved.x, W, [&](const Tensor& windows, i64 first, i64 end) {
    matmul_into(windows, weight, as_rows(y).slice(0, first, end));
  });
  const auto add = [&](auto with_relu) {
    for_elements("causal_conv1d", device, y.count(),
                 AddBias<T, with_relu.value>{bias.data<T>(), y.data<T>(), m});
  };
  relu ? add(std::true_type{}) : add(std::false_type{});
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
  each_part<Look::ahead, T>(device, dz, W, [&](const Tensor& windows, i64 first, i64 end) {
    matmul_into(windows, turned, as_rows(dx).slice(0, first, end));
  });
  const Tensor joint = dweight.reshape({W * n, m});
  each_part<Look::back, T>(device, saved.x, W, [&](const Tensor& windows, i64 first, i64 end) {
    matmul_into(windows.transpose(0, 1), as_rows(dz).slice(0, first, end), joint, first > 0);
  });
  return {dx, dweight, sum_over(as_rows(dz), 0, 0)};
}

template struct CausalConv1dKernels<Cuda, float>;
template struct CausalConv1dKernels<Cuda, double>;

}  // namespace weft
