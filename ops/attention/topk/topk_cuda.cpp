// Attention to the k largest keys on CUDA devices: the memory that its kernels share.
#include "ops/attention/topk/topk.h"
#include "runtime/cuda/device.h"
#include "runtime/tensor.h"

namespace weft {

template <class T>
void topk_select(const Cuda& device, const TopkAttention<T>& p, View<std::int32_t, 4> topk) {
  const std::int64_t bytes = topk_scratch_bytes(p, topk.size(3));
  const Tensor scratch = Tensor::empty({bytes}, DType::u8, device);
  topk_select_tiles(device, p, topk, bytes == 0 ? nullptr : scratch.data<std::uint8_t>());
}

template <class T>
void topk_backward(const Cuda& device, const TopkAttention<T>& p, View<const std::int32_t, 4> topk,
                   View<const T, 3> log_sums, View<const T, 4> dout, View<T, 4> dq, View<T, 4> dk,
                   View<T, 4> dv) {
  const Tensor work = Tensor::empty({2, p.B(), p.H(), p.N(), topk.size(3)}, dtype_of<T>, device);
  T* const weights = work.data<T>();
  topk_gradients(device, p, topk, log_sums, dout, dq, dk, dv, weights, weights + work.count() / 2);
}

#define WEFT_TOPK(T)                                                                             \
  template void topk_select(const Cuda&, const TopkAttention<T>&, View<std::int32_t, 4>);        \
  template void topk_backward(const Cuda&, const TopkAttention<T>&, View<const std::int32_t, 4>, \
                              View<const T, 3>, View<const T, 4>, View<T, 4>, View<T, 4>,        \
                              View<T, 4>);
WEFT_TOPK(float)
WEFT_TOPK(double)

}  // namespace weft
