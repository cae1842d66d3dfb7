// Pack<T>: a SIMD vector with the operators of a number.
//
// A formula written as a template over its number type X computes with float and double, and with
// Pack<float> and Pack<double> a vector at a time. Elements in bf16 are loaded into a Pack<float>
// and rounded when it is stored. `where` is the conditional that all of them have
// (for numbers: ops/pointwise/functions.h).
#pragma once

#include <cmath>

#include "runtime/simd.h"

namespace weft {

namespace pack_detail {

// With z = |x|: erfc z = e^(−z²) q(z), and erfc(−z) = 2 − erfc z. (1 + 2z) q(z) is a polynomial in
// t = (z − 2)/(z + 2), the minimax one of degree 9, with coefficients in f32 to 4e-8, up to 10.2,
// where erfc is 0 in f32; the rounding error of z² is compensated. −∞, ∞ and NaN are exact.
template <class V>
HWY_INLINE V erfc_f32(V x) {
  namespace hn = simd::hn;
  const simd::Tag<float> d;
  const auto one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
  const auto z = hn::Min(hn::Set(d, 10.2f), hn::Abs(x));  // a NaN passes through the second operand
  const auto t = hn::Div(hn::Sub(z, two), hn::Add(z, two));
  auto q = hn::Set(d, -3.9944268e-4f);
  for (const float c :
       {-1.2279999e-3f, 1.3133024e-3f, 8.6300969e-3f, -8.0601405e-3f, -5.4203887e-2f, 1.6405542e-1f,
        -1.6603146e-1f, -9.2763983e-2f, 1.2769784f}) {
    q = hn::MulAdd(q, t, hn::Set(d, c));
  }
  const auto square = hn::Mul(z, z), rest = hn::MulSub(z, z, square);
  const auto power = simd::exp<float>(hn::Neg(square));
  const auto tail = hn::Div(hn::Mul(q, hn::NegMulAdd(power, rest, power)), hn::MulAdd(two, z, one));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Sub(two, tail), tail);
}

}  // namespace pack_detail

template <Real T>
class Pack {
 public:
  using Tag = simd::Tag<T>;
  using Vector = simd::Vector<T>;
  static constexpr i64 lanes = simd::lanes<T>;

  struct Mask {
    simd::hn::Mask<Tag> mask;
  };

  HWY_INLINE Pack(Vector vector) : vector_(vector) {}
  HWY_INLINE Pack(double number) : vector_(simd::hn::Set(Tag{}, static_cast<T>(number))) {}

  HWY_INLINE Vector vector() const { return vector_; }

  // The first min(count, lanes) elements; the remaining lanes are zero.
  template <class S>
  static HWY_INLINE Pack load(const S* from, i64 count = lanes) {
    return simd::load(from, count);
  }
  template <class S>
  HWY_INLINE void store(S* to, i64 count = lanes) const {
    simd::store<S>(vector_, to, count);
  }

  friend HWY_INLINE Pack operator+(Pack a, Pack b) { return simd::hn::Add(a.vector_, b.vector_); }
  friend HWY_INLINE Pack operator-(Pack a, Pack b) { return simd::hn::Sub(a.vector_, b.vector_); }
  friend HWY_INLINE Pack operator*(Pack a, Pack b) { return simd::hn::Mul(a.vector_, b.vector_); }
  friend HWY_INLINE Pack operator/(Pack a, Pack b) { return simd::hn::Div(a.vector_, b.vector_); }
  friend HWY_INLINE Pack operator-(Pack a) { return simd::hn::Neg(a.vector_); }
  friend HWY_INLINE Mask operator<(Pack a, Pack b) { return {simd::hn::Lt(a.vector_, b.vector_)}; }
  friend HWY_INLINE Mask operator<=(Pack a, Pack b) { return {simd::hn::Le(a.vector_, b.vector_)}; }

  friend HWY_INLINE Pack where(Mask condition, Pack a, Pack b) {
    return simd::hn::IfThenElse(condition.mask, a.vector_, b.vector_);
  }
  // The first `count` lanes; the others become zero.
  friend HWY_INLINE Pack first(Pack x, i64 count) {
    return simd::hn::IfThenElseZero(simd::hn::FirstN(Tag{}, static_cast<std::size_t>(count)),
                                    x.vector_);
  }
  friend HWY_INLINE Pack exp(Pack x) { return simd::exp<T>(x.vector_); }
  friend HWY_INLINE Pack exp2(Pack x) { return simd::exp2<T>(x.vector_); }
  // For x <= 0.
  friend HWY_INLINE Pack expm1(Pack x) { return simd::hn::Expm1(Tag{}, x.vector_); }
  friend HWY_INLINE Pack log(Pack x) { return simd::log<T>(x.vector_); }
  friend HWY_INLINE Pack sqrt(Pack x) { return simd::hn::Sqrt(x.vector_); }
  friend HWY_INLINE Pack tanh(Pack x) { return simd::hn::Tanh(Tag{}, x.vector_); }
  // To 5 ulp in f32; in f64, the type of gradient checks, lane by lane.
  friend HWY_INLINE Pack erfc(Pack x) {
    if constexpr (std::is_same_v<T, float>) {
      return pack_detail::erfc_f32(x.vector_);
    } else {
      HWY_ALIGN T lane[lanes];
      x.store(lane);
      for (T& y : lane) y = std::erfc(y);
      return load(lane);
    }
  }

 private:
  Vector vector_;
};

// f(i, n) for 0 … count−1, a vector at a time: the vector begins at element i and n of its lanes
// are used. n is a compile-time constant in all calls but the last.
template <class T, class F>
HWY_INLINE void each_pack(i64 count, const F& f) {
  constexpr i64 lanes = Pack<T>::lanes;
  i64 i = 0;
  for (; i + lanes <= count; i += lanes) f(i, lanes);
  if (i < count) f(i, count - i);
}

// y[i] = f(x₁[i], x₂[i], …), where f computes with Pack<Accumulator<S>>.
template <class S, class F, class... X>
HWY_INLINE void map(i64 count, S* y, const F& f, const X*... x) {
  using T = Accumulator<S>;
  each_pack<T>(count, [&](i64 i, i64 n) { f(Pack<T>::load(x + i, n)...).store(y + i, n); });
}

}  // namespace weft
