#include <algorithm>

#include "ops/cross_entropy/kernels.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "runtime/cuda/device.h"
#include "runtime/matmul.h"

namespace weft {
namespace {

constexpr i64 logits_at_a_time = 1 << 22;  // of the rows processed together

}  // namespace

template <class Device, class S>
void LinearCrossEntropyKernels<Device, S>::forward(const Device& device, const Tensor& x,
                                                   const Tensor& table, const Tensor& targets,
                                                   const Tensor& nats, const Gradients& gradients) {
  using T = Accumulator<S>;
  const i64 R = x.size(0), V = table.size(0);
  const i64 together = std::min(R, std::max<i64>(1, logits_at_a_time / std::max<i64>(1, V)));
  const bool recorded = gradients.dx.defined();
  const Tensor room = Tensor::empty({together, V}, dtype_of<T>, x.device());
  const Tensor kept = recorded ? Tensor::empty({2, together}, dtype_of<T>, x.device()) : Tensor{};
  for (i64 begin = 0; begin < R; begin += together) {
    const i64 end = std::min(R, begin + together), rows = end - begin;
    const Tensor logits = room.slice(0, 0, rows), inputs = x.slice(0, begin, end);
    matmul_into(inputs, table.transpose(0, 1), logits);
    T *const z = logits.data<T>(), *const sums = recorded ? kept.data<T>() : nullptr;
    const i64* const t = targets.data<i64>() + begin;
    CrossEntropyKernels<Device, T>::forward(device, rows, V, z, t, sums,
                                            nats.data<double>() + begin);
    if (!recorded) continue;
    const double share = static_cast<double>(rows) / static_cast<double>(R);
    const Tensor dmean = Tensor::full({}, share, dtype_of<T>, x.device());
    CrossEntropyKernels<Device, T>::backward(device, rows, V, z, t, sums, dmean.data<T>(), z);
    const Tensor factors = logits.to(x.dtype());
    matmul_into(factors, table, gradients.dx.slice(0, begin, end));
    matmul_into(factors.transpose(0, 1), inputs, gradients.dtable, begin > 0);
  }
}

template struct LinearCrossEntropyKernels<Cuda, float>;
template struct LinearCrossEntropyKernels<Cuda, double>;
template struct LinearCrossEntropyKernels<Cuda, bf16>;

}  // namespace weft
