#include "ops/layer_norm/layer_norm.h"

#include <cmath>

#include "ops/dropout/mask_vectors.h"
#include "ops/layer_norm/kernels.h"
#include "runtime/dispatch.h"
#include "runtime/pack.h"
#include "runtime/row_sums.h"

namespace weft {
namespace {

namespace hn = simd::hn;

constexpr std::int64_t block = 128;  // rows of one piece of parallel work
constexpr std::int64_t group = 8;    // rows whose mask is drawn at a time

// The mask's factors for groups of rows; 1 everywhere without dropout.
template <class T>
class Factors {
 public:
  explicit Factors(const LayerNormRows<T>& p)
      : p_(p),
        ones_(std::size_t(group * p.d), T(1)),
        values_(ones_) {}

  // The factors of row i, given that rows are visited in order from `begin`.
  const T* of(std::int64_t i, std::int64_t begin, std::int64_t end) {
    if (p_.mask.threshold > 0 && (i - begin) % group == 0) {
      const std::int64_t rows = std::min(group, end - i);
      for (std::int64_t row = 0; row < rows; ++row) {
        apply_dropout(p_.mask, i + row, 0, p_.d, ones_.data(), values_.data() + row * p_.d);
      }
    }
    return values_.data() + (i - begin) % group * p_.d;
  }

 private:
  const LayerNormRows<T>& p_;
  std::vector<T> ones_, values_;
};

// z of one row into `z`; returns its mean.
template <class T>
T residual_row(const LayerNormRows<T>& p, std::int64_t i, const T* factors, T* z) {
  const T* const x = p.x + i * p.d;
  const T* const branch = p.branch == nullptr ? nullptr : p.branch + i * p.d;
  const bool on_sum = p.dropout_on == DropoutOn::sum;
  auto sum = hn::Zero(simd::Tag<T>{});
  each_pack<T>(p.d, [&](std::int64_t j, std::int64_t left) {
    auto value = simd::load(x + j, left);
    if (branch != nullptr) {
      const auto added = simd::load(branch + j, left), factor = simd::load(factors + j, left);
      value = on_sum ? hn::Mul(hn::Add(value, added), factor) : hn::MulAdd(added, factor, value);
    }
    sum = hn::Add(sum, value);
    simd::store<T>(value, z + j, left);
  });
  return simd::sum_of_lanes<T>(sum) / static_cast<T>(p.d);
}

}  // namespace

template <class T>
void layer_norm_forward(const Cpu&, const LayerNormRows<T>& p, T* normalised, T* inverse_deviation, T* y) {
  const simd::Tag<T> tag;
  parallel_ranges(p.rows, block, [&](std::int64_t begin, std::int64_t end) {
    Factors<T> factors(p);
    const std::int64_t d = p.d;
    const T *const gain = p.gain, *const bias = p.bias;
    for (std::int64_t i = begin; i < end; ++i) {
      T *const z = normalised + i * d, *const to = y + i * d;
      const auto mean = hn::Set(tag, residual_row(p, i, factors.of(i, begin, end), z));
      auto squares = hn::Zero(tag);
      each_pack<T>(d, [&](std::int64_t j, std::int64_t left) {
        auto centred = hn::Sub(simd::load(z + j, left), mean);
        if (left < simd::lanes<T>) {
          centred = hn::IfThenElseZero(hn::FirstN(tag, std::size_t(left)), centred);
        }
        squares = hn::MulAdd(centred, centred, squares);
      });
      const T variance = simd::sum_of_lanes<T>(squares) / static_cast<T>(d);
      inverse_deviation[i] = 1 / std::sqrt(variance + p.epsilon);
      const auto scale = hn::Set(tag, inverse_deviation[i]);
      each_pack<T>(d, [&](std::int64_t j, std::int64_t left) {
        const auto unit = hn::Mul(hn::Sub(simd::load(z + j, left), mean), scale);
        simd::store<T>(unit, z + j, left);
        simd::store<T>(hn::MulAdd(simd::load(gain + j, left), unit, simd::load(bias + j, left)),
                       to + j, left);
      });
    }
  });
}

template <class T>
void layer_norm_backward(const Cpu&, const LayerNormRows<T>& p, const T* normalised,
                         const T* inverse_deviation, const T* dy, T* dx, T* dbranch, T* sums) {
  const simd::Tag<T> tag;
  const bool on_sum = p.dropout_on == DropoutOn::sum;
  row_sums<T>(p.rows, block, 2 * p.d, sums, [&](std::int64_t begin, std::int64_t end, T* part) {
    Factors<T> factors(p);
    const std::int64_t d = p.d;
    const T* const gain = p.gain;
    T* const bias_part = part + d;
    for (std::int64_t i = begin; i < end; ++i) {
      const T *const unit_row = normalised + i * d, *const dy_row = dy + i * d;
      T* const dx_row = dx + i * d;
      T* const dbranch_row = on_sum || dbranch == nullptr ? nullptr : dbranch + i * d;
      const T* const factor_row = factors.of(i, begin, end);
      auto sum = hn::Zero(tag), product = hn::Zero(tag);
      each_pack<T>(d, [&](std::int64_t j, std::int64_t left) {
        const auto gradient = simd::load(dy_row + j, left), unit = simd::load(unit_row + j, left);
        const auto dunit = hn::Mul(simd::load(gain + j, left), gradient);
        sum = hn::Add(sum, dunit);
        product = hn::MulAdd(dunit, unit, product);
        simd::store<T>(hn::MulAdd(gradient, unit, simd::load(part + j, left)), part + j, left);
        simd::store<T>(hn::Add(gradient, simd::load(bias_part + j, left)), bias_part + j, left);
      });
      const auto mean = hn::Set(tag, simd::sum_of_lanes<T>(sum) / static_cast<T>(d));
      const auto slope = hn::Set(tag, simd::sum_of_lanes<T>(product) / static_cast<T>(d));
      const auto scale = hn::Set(tag, inverse_deviation[i]);
      each_pack<T>(d, [&](std::int64_t j, std::int64_t left) {
        const auto unit = simd::load(unit_row + j, left);
        const auto dunit = hn::Mul(simd::load(gain + j, left), simd::load(dy_row + j, left));
        const auto dz =
            hn::Mul(scale, hn::NegMulAdd(slope, unit, hn::Sub(dunit, mean)));
        const auto dropped = hn::Mul(dz, simd::load(factor_row + j, left));
        simd::store<T>(on_sum ? dropped : dz, dx_row + j, left);
        if (dbranch_row != nullptr) simd::store<T>(dropped, dbranch_row + j, left);
      });
    }
  });
}

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
          "layer_norm: x {} wants a gain and a bias [{}], got {} and {}", x.shape(),
          x.rank() >= 1 ? x.size(-1) : 0, gain.shape(), bias.shape());
  require(!branch.defined() || branch.shape() == x.shape(),
          "layer_norm: x is {}, the branch {}; both must be alike", x.shape(), branch.shape());
  for (const Tensor* tensor : {&branch, &gain, &bias}) {
    require(!tensor->defined() || tensor->dtype() == x.dtype(), "layer_norm: x is {}, another input {}",
            name_of(x.dtype()), name_of(tensor->dtype()));
  }
  check_dropout_rate("layer_norm", dropout);
  require(branch.defined() || dropout == 0, "layer_norm: dropout wants a branch");
  const std::int64_t d = x.size(-1), rows = x.rows();
  const Tensor input = x.packed(), offset = bias.packed();
  const Tensor other = branch.defined() ? branch.packed() : branch;
  saved = {Tensor::empty({rows, d}, x.dtype(), x.device()),
           Tensor::empty({rows}, x.dtype(), x.device()), gain.packed(), branch.defined()};
  Tensor y = Tensor::empty_like(x);
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    layer_norm_forward<T>(device,
                          {rows,
                           d,
                           input.data<T>(),
                           pointer<T>(other),
                           saved.gain.data<T>(),
                           offset.data<T>(),
                           static_cast<T>(epsilon),
                           dropout_on,
                           {random, dropout, d}},
                          saved.normalised.data<T>(), saved.inverse_deviation.data<T>(),
                          y.data<T>());
  });
  return y;
}

std::array<Tensor, 4> LayerNorm::backward(const Saved& saved, const Tensor& dy) const {
  const std::int64_t rows = saved.normalised.size(0), d = saved.normalised.size(1);
  const Tensor gradient = dy.packed();
  const bool on_sum = dropout_on == DropoutOn::sum;
  Tensor dx = Tensor::empty_like(dy);
  Tensor dbranch = !saved.branched ? Tensor{} : on_sum ? dx : Tensor::empty_like(dy);
  const Tensor sums = Tensor::empty({2, d}, dy.dtype(), dy.device());
  dispatch(dy, [&](auto device, auto type) {
    using T = decltype(type);
    layer_norm_backward<T>(device,
                           {rows,
                            d,
                            nullptr,
                            nullptr,
                            saved.gain.data<T>(),
                            nullptr,
                            static_cast<T>(epsilon),
                            dropout_on,
                            {random, dropout, d}},
                           saved.normalised.data<T>(), saved.inverse_deviation.data<T>(),
                           gradient.data<T>(), dx.data<T>(), pointer<T>(dbranch), sums.data<T>());
  });
  return {dx, dbranch, sums.slice(0, 0, 1).reshape({d}), sums.slice(0, 1, 2).reshape({d})};
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
