#include "ops/linear/linear.h"

#include "runtime/dispatch.h"

namespace weft {
namespace {

// What products read. A weight of their type is itself if its rows or its columns are packed, so
// that the transposed table of an embedding is not copied. Of another type, its view names the
// copy: columns of a matrix are converted once a step, too.
Tensor readable(const Tensor& weight, DType type) {
  if (weight.dtype() != type) return compute_copy(weight, type);
  return weight.transpose(0, 1).contiguous() ? weight : weight.packed();
}

}  // namespace

Tensor Linear::forward(Saved& saved, const Tensor& x, const Tensor& weight,
                       const Tensor& bias) const {
  require_real(name, x);
  require(x.rank() >= 1 && weight.rank() == 2 && x.size(-1) == weight.size(0),
          "linear: wanted x [.., n] and a weight [n, m], got {} and {}", x.shape(), weight.shape());
  const DType type = x.dtype(), learnt = weight.dtype();
  require(learnt == type || learnt == accumulator_of(type), "linear: x is {}, the weight {}",
          name_of(type), name_of(learnt));
  const i64 m = weight.size(1);
  require(!bias.defined() || (bias.shape() == Shape{m} && bias.dtype() == learnt),
          "linear: the weight {} needs a bias [{}] of {}, got {} of {}", weight.shape(), m,
          name_of(learnt), bias.shape(), name_of(bias.dtype()));
  saved = {x.packed(), readable(weight, type), bias.defined(), learnt};
  const Tensor offset = bias.defined() ? bias.packed().to(accumulator_of(type)) : bias;
  Shape shape = x.shape();
  shape[x.rank() - 1] = m;
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  dispatch_floating(x, [&](auto device, auto type) {
    using T = decltype(type);
    LinearKernels<decltype(device), T>::forward(device, saved.x, saved.weight, offset, y);
  });
  return y;
}

std::array<Tensor, 3> Linear::backward(const Saved& saved, Wants wants, const Tensor& dy) const {
  const i64 m = saved.weight.size(1);
  const Tensor gradient = dy.packed();
  const DType sums = accumulator_of(dy.dtype());
  const auto wanted = [&](std::size_t input, const Shape& shape, DType type) {
    return wants[input] ? Tensor::empty(shape, type, dy.device()) : Tensor{};
  };
  const LinearGradients gradients{wanted(0, saved.x.shape(), dy.dtype()),
                                  wanted(1, saved.weight.shape(), sums),
                                  saved.biased ? wanted(2, {m}, sums) : Tensor{}};
  dispatch_floating(dy, [&](auto device, auto type) {
    using T = decltype(type);
    LinearKernels<decltype(device), T>::backward(device, saved.x, saved.weight, gradient,
                                                 gradients);
  });
  const auto as_given = [&](const Tensor& x) { return x.defined() ? x.to(saved.learnt) : x; };
  return {gradients.x, as_given(gradients.weight), as_given(gradients.bias)};
}

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  return apply(Linear{}, x, weight, bias);
}

}  // namespace weft
