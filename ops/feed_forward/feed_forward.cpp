#include "ops/feed_forward/feed_forward.h"

#include "runtime/dispatch.h"

namespace weft {

namespace {

void check(const Tensor& x, const Tensor& weight1, const Tensor& bias1, const Tensor& weight2,
           const Tensor& bias2) {
  const bool fit = x.rank() >= 1 && weight1.rank() == 2 && weight2.rank() == 2 &&
                   x.size(-1) == weight1.size(0) && weight1.size(1) == weight2.size(0) &&
                   bias1.shape() == Shape{weight1.size(1)} &&
                   bias2.shape() == Shape{weight2.size(1)};
  require(
      fit,
      "feed_forward: wanted x [.., d], weights [d, h] and [h, d'], biases [h] and [d']; got x {}, "
      "weights {} and {}, biases {} and {}",
      x.shape(), weight1.shape(), weight2.shape(), bias1.shape(), bias2.shape());
  for (const Tensor* tensor : {&weight1, &bias1, &weight2, &bias2}) {
    const DType type = tensor->dtype();
    const bool one = type == x.dtype() || type == accumulator_of(x.dtype());
    require(one && type == weight1.dtype(), "feed_forward: x is {}, a weight {}",
            name_of(x.dtype()), name_of(type));
  }
}

}  // namespace

Tensor FeedForward::forward(Saved& saved, const Tensor& x, const Tensor& weight1,
                            const Tensor& bias1, const Tensor& weight2, const Tensor& bias2) const {
  require_real(name, x);
  require(activation != Activation::none, "feed_forward: wanted relu, gelu or silu");
  check(x, weight1, bias1, weight2, bias2);
  Shape inner = x.shape(), outer = x.shape();
  inner[x.rank() - 1] = weight1.size(1);
  outer[x.rank() - 1] = weight2.size(1);
  const DType type = x.dtype(), sums = accumulator_of(type);
  saved = {x.packed(), compute_copy(weight1.packed(), type), compute_copy(weight2.packed(), type),
           Tensor::empty(inner, type, x.device()), weight1.dtype()};
  const Tensor offset1 = bias1.packed().to(sums), offset2 = bias2.packed().to(sums);
  Tensor y = Tensor::empty(outer, x.dtype(), x.device());
  dispatch_floating(x, [&](auto device, auto type) {
    using T = decltype(type);
    FeedForwardKernels<decltype(device), T>::forward(device, activation, saved, offset1, offset2,
                                                     y);
  });
  return y;
}

std::array<Tensor, 5> FeedForward::backward(const Saved& saved, const Tensor& dy) const {
  const Tensor gradient = dy.packed();
  std::array<Tensor, 5> gradients = dispatch_floating(dy, [&](auto device, auto type) {
    using Kernels = FeedForwardKernels<decltype(device), decltype(type)>;
    return Kernels::backward(device, activation, saved, gradient);
  });
  for (std::size_t i = 1; i < gradients.size(); ++i) gradients[i] = gradients[i].to(saved.learnt);
  return gradients;
}

Variable feed_forward(const Variable& x, const Variable& weight1, const Variable& bias1,
                      const Variable& weight2, const Variable& bias2, Activation activation) {
  return apply(FeedForward{activation}, x, weight1, bias1, weight2, bias2);
}

}  // namespace weft
