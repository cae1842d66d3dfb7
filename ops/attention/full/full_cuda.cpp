// Full attention backward on CUDA devices: the memory that its kernels share.
#include "ops/attention/full/full.h"
#include "runtime/cuda/device.h"
#include "runtime/tensor.h"

namespace weft {

template <class T>
void full_attention_backward(const Cuda& device, const FullAttention<T>& p, View<const T, 4> out,
                             View<const T, 3> log_sums, View<const T, 4> dout, View<T, 4> dq,
                             View<T, 4> dk, View<T, 4> dv, View<T, 4> dbias) {
  const Tensor deltas = Tensor::empty({p.B(), p.H(), p.N()}, dtype_of<T>, device);
  full_attention_gradients<T>(device, p, out, log_sums, dout, deltas.view<T, 3>(), dq, dk, dv,
                              dbias);
}

#define WEFT_BACKWARD(T)                                                                        \
  template void full_attention_backward(const Cuda&, const FullAttention<T>&, View<const T, 4>, \
                                        View<const T, 3>, View<const T, 4>, View<T, 4>,         \
                                        View<T, 4>, View<T, 4>, View<T, 4>);
WEFT_BACKWARD(float)
WEFT_BACKWARD(double)

}  // namespace weft
