// The activations of fused layers, on vectors: value and derivative from one exponential.
#pragma once

#include "runtime/simd.h"

namespace weft {

// GELU, tanh form; the equations stand in feed_forward.h.
template <class T>
struct GeluVector {
  static constexpr T c = T(0.7978845608028654);  // √(2/π)
  static constexpr T cubic = T(0.044715);

  struct Both {
    simd::Vector<T> value, derivative;
  };

  static HWY_INLINE simd::Vector<T> gate(simd::Vector<T> z) {
    namespace hn = simd::hn;
    const simd::Tag<T> d;
    const auto square = hn::Mul(z, z);
    const auto u2 = hn::Mul(z, hn::MulAdd(square, hn::Set(d, 2 * c * cubic), hn::Set(d, 2 * c)));
    return simd::sigmoid<T>(u2);
  }

  static HWY_INLINE simd::Vector<T> value(simd::Vector<T> z) { return simd::hn::Mul(z, gate(z)); }

  static HWY_INLINE Both both(simd::Vector<T> z) {
    namespace hn = simd::hn;
    const simd::Tag<T> d;
    const auto s = gate(z);
    const auto slope = hn::MulAdd(hn::Mul(z, z), hn::Set(d, 6 * c * cubic), hn::Set(d, 2 * c));
    const auto value = hn::Mul(z, s);
    return {value, hn::MulAdd(hn::Mul(value, hn::Sub(hn::Set(d, T(1)), s)), slope, s)};
  }
};

template <class T>
struct ReluVector {
  using Both = typename GeluVector<T>::Both;

  static HWY_INLINE simd::Vector<T> value(simd::Vector<T> z) {
    namespace hn = simd::hn;
    return hn::IfThenElse(hn::Lt(z, hn::Zero(simd::Tag<T>{})), hn::Zero(simd::Tag<T>{}), z);
  }
  static HWY_INLINE Both both(simd::Vector<T> z) {
    namespace hn = simd::hn;
    const simd::Tag<T> d;
    const auto one = hn::Set(d, T(1));
    return {value(z), hn::IfThenElseZero(hn::Gt(z, hn::Zero(d)), one)};
  }
};

}  // namespace weft
