#include <cmath>

#include "ops/dropout/mask_vectors.h"
#include "ops/layer_norm/kernels.h"
#include "runtime/pack.h"
#include "runtime/row_sums.h"

namespace weft {
namespace {

namespace hn = simd::hn;

constexpr i64 block = 128;  // rows of one task
constexpr i64 group = 8;    // rows whose mask is drawn together

// The mask's factors for groups of rows; 1 without dropout.
template <class S>
class Factors {
 public:
  using T = Accumulator<S>;

  explicit Factors(const LayerNormRows<S>& p)
      : p_(p), ones_(std::size_t(group * p.d), T(1)), values_(ones_) {}

  // The factors of row i; rows have to be visited in order from `begin`.
  const T* of(i64 i, i64 begin, i64 end) {
    if (p_.mask.threshold > 0 && (i - begin) % group == 0) {
      const i64 rows = std::min(group, end - i);
      for (i64 row = 0; row < rows; ++row) {
        apply_dropout(p_.mask, i + row, 0, p_.d, ones_.data(), values_.data() + row * p_.d);
      }
    }
    return values_.data() + (i - begin) % group * p_.d;
  }

 private:
  const LayerNormRows<S>& p_;
  std::vector<T> ones_, values_;
};

// Writes z of one row to `z`; returns its mean.
template <class S, class T>
T residual_row(const LayerNormRows<S>& p, i64 i, const T* factors, T* z) {
  const S* const x = p.x + i * p.d;
  const S* const branch = p.branch == nullptr ? nullptr : p.branch + i * p.d;
  const bool on_sum = p.dropout_on == DropoutOn::sum;
  auto sum = hn::Zero(simd::Tag<T>{});
  each_pack<T>(p.d, [&](i64 j, i64 left) {
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

template <class Device, class S>
void LayerNormKernels<Device, S>::forward(const Device&, const LayerNormRows<S>& p, T* normalised,
                                          T* inverse_deviation, S* y) {
  const simd::Tag<T> tag;
  parallel_ranges(p.rows, block, [&](i64 begin, i64 end) {
    Factors<S> factors(p);
    const i64 d = p.d;
    const T *const gain = p.gain, *const bias = p.bias;
    for (i64 i = begin; i < end; ++i) {
      T* const z = normalised + i * d;
      S* const to = y + i * d;
      const auto mean = hn::Set(tag, residual_row(p, i, factors.of(i, begin, end), z));
      auto squares = hn::Zero(tag);
      each_pack<T>(d, [&](i64 j, i64 left) {
        auto centred = hn::Sub(simd::load(z + j, left), mean);
        if (left < simd::lanes<T>) {
          centred = hn::IfThenElseZero(hn::FirstN(tag, std::size_t(left)), centred);
        }
        squares = hn::MulAdd(centred, centred, squares);
      });
      const T variance = simd::sum_of_lanes<T>(squares) / static_cast<T>(d);
      inverse_deviation[i] = 1 / std::sqrt(variance + p.epsilon);
      const auto scale = hn::Set(tag, inverse_deviation[i]);
      each_pack<T>(d, [&](i64 j, i64 left) {
        const auto unit = hn::Mul(hn::Sub(simd::load(z + j, left), mean), scale);
        simd::store<T>(unit, z + j, left);
        simd::store<S>(hn::MulAdd(simd::load(gain + j, left), unit, simd::load(bias + j, left)),
                       to + j, left);
      });
    }
  });
}

template <class Device, class S>
void LayerNormKernels<Device, S>::backward(const Device&, const LayerNormRows<S>& p,
                                           const T* normalised, const T* inverse_deviation,
                                           const S* dy, S* dx, S* dbranch, T* sums) {
  const simd::Tag<T> tag;
  const bool on_sum = p.dropout_on == DropoutOn::sum;
  row_sums<T>(p.rows, block, 2 * p.d, sums, [&](i64 begin, i64 end, T* part) {
    Factors<S> factors(p);
    const i64 d = p.d;
    const T* const gain = p.gain;
    T* const bias_part = part + d;
    for (i64 i = begin; i < end; ++i) {
      const T* const unit_row = normalised + i * d;
      const S* const dy_row = dy + i * d;
      S* const dx_row = dx + i * d;
      S* const dbranch_row = on_sum || dbranch == nullptr ? nullptr : dbranch + i * d;
      const T* const factor_row = factors.of(i, begin, end);
      auto sum = hn::Zero(tag), product = hn::Zero(tag);
      each_pack<T>(d, [&](i64 j, i64 left) {
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
      each_pack<T>(d, [&](i64 j, i64 left) {
        const auto unit = simd::load(unit_row + j, left);
        const auto dunit = hn::Mul(simd::load(gain + j, left), simd::load(dy_row + j, left));
        const auto dz = hn::Mul(scale, hn::NegMulAdd(slope, unit, hn::Sub(dunit, mean)));
        const auto dropped = hn::Mul(dz, simd::load(factor_row + j, left));
        simd::store<S>(on_sum ? dropped : dz, dx_row + j, left);
        if (dbranch_row != nullptr) simd::store<S>(dropped, dbranch_row + j, left);
      });
    }
  });
}

template struct LayerNormKernels<Cpu, float>;
template struct LayerNormKernels<Cpu, double>;
template struct LayerNormKernels<Cpu, bf16>;

}  // namespace weft
