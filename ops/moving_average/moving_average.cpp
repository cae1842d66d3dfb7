#include "ops/moving_average/moving_average.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/scores.h"
#include "ops/moving_average/kernels.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

template <class T>
MovingAverages<T> coefficients(const MovingAverage& op, const MovingAverage::Saved& saved) {
  return {.decay = saved.decay.view<const T, 3>(),
          .weight = saved.weight.view<const T, 3>(),
          .lengths = numbers_of(op.lengths),
          .truncation = op.truncation};
}

void check(const MovingAverage& op, const Tensor& x, const Tensor& decay, const Tensor& weight) {
  require_real(op.name, x);
  const bool fit = x.rank() == 3 && decay.rank() == 3 &&
                   (decay.size(0) == 1 || decay.size(0) == 2) && decay.size(1) == x.size(2) &&
                   decay.size(2) >= 1 && weight.shape() == decay.shape();
  require(
      fit,
      "moving_average: wanted x [B, N, d], a decay and a weight [D, d, n] with D = 1 or 2; got {}, "
      "{} and {}",
      x.shape(), decay.shape(), weight.shape());
  require(x.dtype() == decay.dtype() && x.dtype() == weight.dtype(),
          "moving_average: x is {}, the decay {}, the weight {}", name_of(x.dtype()),
          name_of(decay.dtype()), name_of(weight.dtype()));
  require(op.truncation >= 0, "moving_average: wanted a truncation of 0 or more lags, got {}",
          op.truncation);
  require(!op.lengths.defined() ||
              (op.lengths.shape() == Shape{x.size(0)} && op.lengths.dtype() == DType::i64 &&
               op.lengths.device() == x.device()),
          "moving_average: wanted lengths [{}] of i64 where x is, got {} of {}", x.size(0),
          op.lengths.shape(), name_of(op.lengths.dtype()));
}

}  // namespace

Tensor MovingAverage::forward(Saved& saved, const Tensor& x, const Tensor& decay,
                              const Tensor& weight) const {
  check(*this, x, decay, weight);
  saved = {x.packed(), decay, weight};
  const Tensor y = Tensor::empty_like(x);
  if (x.count() == 0) return y;
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    MovingAverageKernels<decltype(device), T>::forward(device, coefficients<T>(*this, saved),
                                                       saved.x.view<const T, 3>(), y.view<T, 3>());
  });
  return y;
}

std::array<Tensor, 3> MovingAverage::backward(const Saved& saved, Wants wants,
                                              const Tensor& given) const {
  const Tensor dy = given.packed();
  const i64 B = dy.size(0), N = dy.size(1);
  std::array<Tensor, 3> gradients;
  if (wants[0]) gradients[0] = Tensor::empty_like(dy);
  dispatch(dy, [&](auto device, auto type) {
    using T = decltype(type);
    using Kernels = MovingAverageKernels<decltype(device), T>;
    const MovingAverages<T> of = coefficients<T>(*this, saved);
    if (wants[0] && dy.count() > 0) {
      Kernels::backward(device, of, dy.view<const T, 3>(), gradients[0].view<T, 3>());
    }
    if (!wants[1] && !wants[2]) return;
    const i64 parts = dy.count() == 0 ? 0 : Kernels::parts(B, N);
    const Shape shape{parts, of.directions(), of.channels(), of.states()};
    const Tensor ddecay = Tensor::empty(shape, dy.dtype(), dy.device());
    const Tensor dweight = Tensor::empty(shape, dy.dtype(), dy.device());
    if (parts > 0) {
      Kernels::sums(device, of, saved.x.view<const T, 3>(), dy.view<const T, 3>(),
                    ddecay.view<T, 4>(), dweight.view<T, 4>());
    }
    gradients[1] = sum_over(ddecay, 0, 0);
    gradients[2] = sum_over(dweight, 0, 0);
  });
  return gradients;
}

Tensor MovingAverage::step(const Tensor& x, i64 earlier, const Tensor& decay, const Tensor& weight,
                           const Tensor& state) const {
  check(*this, x, decay, weight);
  require(!lengths.defined() && decay.size(0) == 1 && state.contiguous() &&
              state.shape() == Shape{x.size(0), x.size(2), decay.size(2)},
          "moving_average: a step needs one direction, no lengths, and states [B, d, n]; got {}, a "
          "decay {} and states {}",
          x.shape(), decay.shape(), state.shape());
  const Tensor rows = x.packed(), last = rows.slice(1, earlier, x.size(1));
  const Tensor y = Tensor::empty(last.shape(), x.dtype(), x.device());
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    MovingAverages<T> of = coefficients<T>(*this, {{}, decay, weight});
    of.state = state.view<T, 3>();
    of.earlier = earlier;
    MovingAverageKernels<decltype(device), T>::forward(device, of, last.view<const T, 3>(),
                                                       y.view<T, 3>());
  });
  return y;
}

Tensor MovingAverageState::step(const Tensor& x, const Tensor& decay, const Tensor& weight) {
  if (!state_.defined()) {
    state_ = Tensor::zeros({x.size(0), x.size(2), decay.size(2)}, x.dtype(), x.device());
  }
  const bool earlier = rows_.defined();
  const Tensor all = earlier ? concatenate(std::vector<Variable>{rows_, x}, 1).value() : x;
  const MovingAverage op{{}, truncation_};
  const Tensor y = op.step(all, earlier ? rows_.size(1) : 0, decay, weight, state_);
  if (truncation_ > 0) {
    rows_ = all.slice(1, std::max<i64>(all.size(1) - truncation_, 0), all.size(1)).clone();
  }
  return y;
}

i64 MovingAverageState::bytes() const {
  const i64 numbers =
      (state_.defined() ? state_.count() : 0) + (rows_.defined() ? rows_.count() : 0);
  return numbers == 0 ? 0 : numbers * i64(size_of(state_.dtype()));
}

Variable moving_average(const Variable& x, const Variable& decay, const Variable& weight,
                        const Tensor& lengths, i64 truncation) {
  return apply(MovingAverage{lengths, truncation}, x, decay, weight);
}

DampedAverage::DampedAverage(const Variable& delta, const Variable& alpha, const Variable& beta,
                             const Variable& gamma) {
  const Variable p = sigmoid(delta);
  const Tensor& like = p.value();
  decay = sub(Tensor::full({}, 1, like.dtype(), like.device()), mul(p, sigmoid(alpha)));
  weight = scale(mul(mul(p, beta), gamma), 1 / std::sqrt(double(like.size(2))));
}

}  // namespace weft
