// Pack<T>: a vector of the processor with the operators of a number.
//
// A formula written as a template, with X for its number, computes with float and double and, a
// vector at a time, with Pack<float> and Pack<double>. `where` is the choice that all of them know
// (for numbers: ops/pointwise/functions.h).
#pragma once

#include <cmath>

#include "runtime/simd.h"

namespace weft {

template <class T>
class Pack {
 public:
  using Tag = simd::Tag<T>;
  using Vector = simd::Vector<T>;
  static constexpr std::int64_t lanes = simd::lanes<T>;

  struct Mask {
    simd::hn::Mask<Tag> mask;
  };

  HWY_INLINE Pack(Vector vector) : vector_(vector) {}
  HWY_INLINE Pack(double number) : vector_(simd::hn::Set(Tag{}, static_cast<T>(number))) {}

  HWY_INLINE Vector vector() const { return vector_; }

  // The first min(count, lanes) elements; a load fills up with zeros.
  static HWY_INLINE Pack load(const T* from, std::int64_t count = lanes) {
    return simd::load<T>(from, count);
  }
  HWY_INLINE void store(T* to, std::int64_t count = lanes) const {
    simd::store<T>(vector_, to, count);
  }

  friend HWY_INLINE Pack operator+(Pack a, Pack b) { return simd::hn::Add(a.vector_, b.vector_); }
  friend HWY_INLINE Pack operator-(Pack a, Pack b) { return simd::hn::Sub(a.vector_, b.vector_); }
  friend HWY_INLINE Pack operator*(Pack a, Pack b) { return simd::hn::Mul(a.vector_, b.vector_); }
  friend HWY_INLINE Pack operator/(Pack a, Pack b) { return simd::hn::Div(a.vector_, b.vector_); }
  friend HWY_INLINE Pack operator-(Pack a) { return simd::hn::Neg(a.vector_); }
  friend HWY_INLINE Mask operator<(Pack a, Pack b) { return {simd::hn::Lt(a.vector_, b.vector_)}; }

  friend HWY_INLINE Pack where(Mask condition, Pack a, Pack b) {
    return simd::hn::IfThenElse(condition.mask, a.vector_, b.vector_);
  }
  // The first `count` lanes, zeros behind them.
  friend HWY_INLINE Pack first(Pack x, std::int64_t count) {
    return simd::hn::IfThenElseZero(simd::hn::FirstN(Tag{}, static_cast<std::size_t>(count)),
                                    x.vector_);
  }
  friend HWY_INLINE Pack exp(Pack x) { return simd::exp<T>(x.vector_); }
  friend HWY_INLINE Pack log(Pack x) { return simd::log<T>(x.vector_); }
  friend HWY_INLINE Pack tanh(Pack x) { return simd::hn::Tanh(Tag{}, x.vector_); }
  friend inline Pack erfc(Pack x) {  // no library has a vector of it: lane by lane
    HWY_ALIGN T lane[lanes];
    x.store(lane);
    for (T& y : lane) y = std::erfc(y);
    return load(lane);
  }

 private:
  Vector vector_;
};

// y[i] = f(x₁[i], x₂[i], …), where f computes with Pack<T>.
template <class T, class F, class... X>
HWY_INLINE void map(std::int64_t count, T* y, const F& f, const X*... x) {
  constexpr std::int64_t lanes = Pack<T>::lanes;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(Pack<T>::load(x + i)...).store(y + i);
  if (i < count) f(Pack<T>::load(x + i, count - i)...).store(y + i, count - i);
}

}  // namespace weft
