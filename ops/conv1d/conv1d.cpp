#include "ops/conv1d/conv1d.h"

#include "runtime/dispatch.h"
#include "runtime/simd.h"

namespace weft {

Tensor CausalConv1d::forward(Saved& saved, const Tensor& x, const Tensor& weight,
                             const Tensor& bias) const {
  require_real(name, x);
  require(x.rank() == 3 && weight.rank() == 3 && x.size(2) == weight.size(1) &&
              weight.size(0) >= 1 && bias.shape() == Shape{weight.size(2)},
          "causal_conv1d: wanted x [B, N, n], a weight [W, n, m] and a bias [m]; got {}, {} and {}",
          x.shape(), weight.shape(), bias.shape());
  const DType type = x.dtype(), learnt = weight.dtype();
  require((learnt == type || learnt == accumulator_of(type)) && bias.dtype() == learnt,
          "causal_conv1d: x is {}, the weight {}, the bias {}", name_of(x.dtype()),
          name_of(weight.dtype()), name_of(bias.dtype()));
  require(activation == Activation::none || activation == Activation::relu,
          "causal_conv1d: wanted no activation or relu");
  const bool relu = activation == Activation::relu;
  saved = {x.packed(), compute_copy(weight.packed(), type), {}, learnt};
  const Tensor offset = bias.packed().to(accumulator_of(type));
  Tensor y = Tensor::empty({x.size(0), x.size(1), weight.size(2)}, x.dtype(), x.device());
  if (type == DType::bf16) {
    CausalConv1dKernels<Cpu, bf16>::forward(Cpu{}, saved, offset, relu, y);
  } else {
    dispatch(x, [&](auto device, auto type) {
      using T = decltype(type);
      CausalConv1dKernels<decltype(device), T>::forward(device, saved, offset, relu, y);
    });
  }
  if (relu) saved.y = y;
  return y;
}

std::array<Tensor, 3> CausalConv1d::backward(const Saved& saved, const Tensor& dy) const {
  const Tensor gradient = dy.packed();
  if (dy.dtype() == DType::bf16) {
    auto found = CausalConv1dKernels<Cpu, bf16>::backward(Cpu{}, saved, gradient);
    return {found[0], found[1].to(saved.learnt), found[2].to(saved.learnt)};
  }
  return dispatch(dy, [&](auto device, auto type) {
    return CausalConv1dKernels<decltype(device), decltype(type)>::backward(device, saved, gradient);
  });
}

Variable causal_conv1d(const Variable& x, const Variable& weight, const Variable& bias,
                       Activation activation) {
  const Tensor& rows = x.value();
  const bool stored =
      simd::has_bf16_dot && rows.dtype() == DType::bf16 && rows.device() == Device{};
  return stored ? apply(StoredCausalConv1d{{activation}}, x, weight, bias)
                : apply(CausalConv1d{activation}, x, weight, bias);
}

}  // namespace weft
