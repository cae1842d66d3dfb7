#include "ops/conv1d/conv1d.h"

#include "runtime/dispatch.h"

namespace weft {

Tensor CausalConv1d::forward(Saved& saved, const Tensor& x, const Tensor& weight,
                             const Tensor& bias) const {
  require_real(name, x);
  require(x.rank() == 3 && weight.rank() == 3 && x.size(2) == weight.size(1) && weight.size(0) >= 1 &&
              bias.shape() == Shape{weight.size(2)},
          "causal_conv1d: wanted x [B, N, n], a weight [W, n, m] and a bias [m]; got {}, {} and {}",
          x.shape(), weight.shape(), bias.shape());
  require(x.dtype() == weight.dtype() && x.dtype() == bias.dtype(),
          "causal_conv1d: x is {}, the weight {}, the bias {}", name_of(x.dtype()),
          name_of(weight.dtype()), name_of(bias.dtype()));
  require(activation == Activation::none || activation == Activation::relu,
          "causal_conv1d: wanted no activation or relu");
  const bool relu = activation == Activation::relu;
  saved = {x.packed(), weight.packed(), {}};
  const Tensor offset = bias.packed();
  Tensor y = Tensor::empty({x.size(0), x.size(1), weight.size(2)}, x.dtype(), x.device());
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    CausalConv1dKernels<decltype(device), T>::forward(device, saved, offset, relu, y);
  });
  if (relu) saved.y = y;
  return y;
}

std::array<Tensor, 3> CausalConv1d::backward(const Saved& saved, const Tensor& dy) const {
  const Tensor gradient = dy.packed();
  return dispatch(dy, [&](auto device, auto type) {
    return CausalConv1dKernels<decltype(device), decltype(type)>::backward(device, saved, gradient);
  });
}

Variable causal_conv1d(const Variable& x, const Variable& weight, const Variable& bias,
                       Activation activation) {
  return apply(CausalConv1d{activation}, x, weight, bias);
}

}  // namespace weft
