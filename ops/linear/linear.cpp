#include "ops/linear/linear.h"

#include "runtime/dispatch.h"

namespace weft {
namespace {

// The weight itself if its rows or its columns are packed, so that the transposed table of an
// embedding is not copied.
Tensor readable(const Tensor& weight) {
  return weight.transpose(0, 1).contiguous() ? weight : weight.packed();
}

}  // namespace

Tensor Linear::forward(Saved& saved, const Tensor& x, const Tensor& weight,
                       const Tensor& bias) const {
  require_real(name, x);
  require(x.rank() >= 1 && weight.rank() == 2 && x.size(-1) == weight.size(0),
          "linear: wanted x [.., n] and a weight [n, m], got {} and {}", x.shape(), weight.shape());
  require(x.dtype() == weight.dtype(), "linear: x is {}, the weight {}", name_of(x.dtype()),
          name_of(weight.dtype()));
  const i64 m = weight.size(1);
  require(!bias.defined() || (bias.shape() == Shape{m} && bias.dtype() == x.dtype()),
          "linear: the weight {} needs a bias [{}] of {}, got {} of {}", weight.shape(), m,
          name_of(x.dtype()), bias.shape(), name_of(bias.dtype()));
  saved = {x.packed(), readable(weight), bias.defined()};
  const Tensor offset = bias.defined() ? bias.packed() : bias;
  Shape shape = x.shape();
  shape[x.rank() - 1] = m;
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    LinearKernels<decltype(device), T>::forward(device, saved.x, saved.weight, offset, y);
  });
  return y;
}

std::array<Tensor, 3> Linear::backward(const Saved& saved, Wants wants, const Tensor& dy) const {
  const i64 m = saved.weight.size(1);
  const Tensor gradient = dy.packed();
  const auto wanted = [&](std::size_t input, const Shape& shape) {
    return wants[input] ? Tensor::empty(shape, dy.dtype(), dy.device()) : Tensor{};
  };
  const LinearGradients gradients{wanted(0, saved.x.shape()), wanted(1, saved.weight.shape()),
                                  saved.biased ? wanted(2, {m}) : Tensor{}};
  dispatch(dy, [&](auto device, auto type) {
    using T = decltype(type);
    LinearKernels<decltype(device), T>::backward(device, saved.x, saved.weight, gradient,
                                                 gradients);
  });
  return {gradients.x, gradients.weight, gradients.bias};
}

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  return apply(Linear{}, x, weight, bias);
}

}  // namespace weft
