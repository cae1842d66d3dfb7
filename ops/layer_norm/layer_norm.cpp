#include "ops/layer_norm/layer_norm.h"

#include "runtime/dispatch.h"

namespace weft {

namespace {

template <class T>
T* pointer(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

}  // namespace

Tensor LayerNorm::forward(Saved& saved, const Tensor& x, const Tensor& branch, const Tensor& gain,
                          const Tensor& bias) const {
  require_real(name, x);
  require(x.rank() >= 1 && gain.shape() == Shape{x.size(-1)} && bias.shape() == gain.shape(),
          "layer_norm: x {} needs a gain and a bias [{}], got {} and {}", x.shape(),
          x.rank() >= 1 ? x.size(-1) : 0, gain.shape(), bias.shape());
  require(!branch.defined() || branch.shape() == x.shape(),
          "layer_norm: x is {}, the branch {}; both must be alike", x.shape(), branch.shape());
  const DType statistics = accumulator_of(x.dtype());
  for (const Tensor* tensor : {&branch, &gain, &bias}) {
    if (!tensor->defined() || tensor->dtype() == x.dtype()) continue;
    require(tensor != &branch && tensor->dtype() == statistics && gain.dtype() == bias.dtype(),
            "layer_norm: x is {}, another input {}", name_of(x.dtype()), name_of(tensor->dtype()));
  }
  require(epsilon >= 0, "layer_norm: epsilon is 0 or more, got {}", epsilon);
  check_dropout_rate("layer_norm", dropout);
  require(branch.defined() || dropout == 0, "layer_norm: dropout needs a branch");
  const i64 d = x.size(-1), rows = x.rows();
  const Tensor input = x.packed(), offset = bias.packed().to(statistics);
  const Tensor other = branch.defined() ? branch.packed() : branch;
  saved = {Tensor::empty({rows, d}, statistics, x.device()),
           Tensor::empty({rows}, statistics, x.device()), gain.packed().to(statistics),
           branch.defined(), gain.dtype()};
  Tensor y = Tensor::empty_like(x);
  dispatch_floating(x, [&](auto device, auto type) {
    using S = decltype(type);
    using T = Accumulator<S>;
    LayerNormKernels<decltype(device), S>::forward(device,
                                                   {rows,
                                                    d,
                                                    input.data<S>(),
                                                    pointer<S>(other),
                                                    saved.gain.data<T>(),
                                                    offset.data<T>(),
                                                    static_cast<T>(epsilon),
                                                    dropout_on,
                                                    {random, dropout, d, rows_of_example(x)}},
                                                   saved.normalised.data<T>(),
                                                   saved.inverse_deviation.data<T>(), y.data<S>());
  });
  return y;
}

std::array<Tensor, 4> LayerNorm::backward(const Saved& saved, const Tensor& dy) const {
  const i64 rows = saved.normalised.size(0), d = saved.normalised.size(1);
  const Tensor gradient = dy.packed();
  const bool on_sum = dropout_on == DropoutOn::sum;
  Tensor dx = Tensor::empty_like(dy);
  Tensor dbranch = !saved.branched ? Tensor{} : on_sum ? dx : Tensor::empty_like(dy);
  const Tensor sums = Tensor::empty({2, d}, accumulator_of(dy.dtype()), dy.device());
  dispatch_floating(dy, [&](auto device, auto type) {
    using S = decltype(type);
    using T = Accumulator<S>;
    LayerNormKernels<decltype(device), S>::backward(
        device,
        {rows,
         d,
         nullptr,
         nullptr,
         saved.gain.data<T>(),
         nullptr,
         static_cast<T>(epsilon),
         dropout_on,
         {random, dropout, d, rows_of_example(dy)}},
        saved.normalised.data<T>(), saved.inverse_deviation.data<T>(), gradient.data<S>(),
        dx.data<S>(), pointer<S>(dbranch), sums.data<T>());
  });
  const Tensor learnt = sums.to(saved.learnt);
  return {dx, dbranch, learnt.slice(0, 0, 1).reshape({d}), learnt.slice(0, 1, 2).reshape({d})};
}

Variable layer_norm(const Variable& x, const Variable& gain, const Variable& bias, double epsilon) {
  return apply(LayerNorm{.epsilon = epsilon}, x, Variable{}, gain, bias);
}

Variable residual_layer_norm(const Variable& x, const Variable& branch, const Variable& gain,
                             const Variable& bias, const Residual& options) {
  require(branch.defined(), "residual_layer_norm: the branch is missing");
  return apply(LayerNorm{options.epsilon, options.dropout_on, options.dropout, options.random}, x,
               branch, gain, bias);
}

}  // namespace weft
