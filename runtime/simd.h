// SIMD vectors for the instruction set of the build, by Highway (static dispatch).
//
// Only what Highway lacks is defined here: partial loads and stores for the tail of a row, those of
// bf16, which is widened to f32 and rounded back, and functions that propagate NaN.
#pragma once

#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>

#include <cstdint>
#include <type_traits>

#include "runtime/dtype.h"

namespace weft::simd {

namespace hn = hwy::HWY_NAMESPACE;

// The widest vector of T, and its number of lanes.
template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vector = hn::Vec<Tag<T>>;
template <class T>
inline constexpr i64 lanes = static_cast<i64>(hn::MaxLanes(Tag<T>{}));

template <class T>
constexpr i64 round_up_to_lanes(i64 count) {
  return (count + lanes<T> - 1) / lanes<T> * lanes<T>;
}

namespace detail {

// Conversions of vectors, as those of runtime/dtype.h.
template <class D>
HWY_INLINE hn::Vec<D> widened(D d, const bf16* from) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<std::uint16_t, D> halves;
  const auto bits = hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(words, bits)));
}

template <class D>
HWY_INLINE void rounded(D, hn::Vec<D> value, bf16* to) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<std::uint16_t, D> halves;
  const auto word = hn::BitCast(words, value);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(words, 1));
  const auto nearest = hn::Add(hn::Add(word, hn::Set(words, 0x7fff)), odd);
  const auto quiet = hn::Or(word, hn::Set(words, 0x400000));
  const auto nan = hn::RebindMask(words, hn::IsNaN(value));
  const auto bits = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, nearest));
  // TruncateTo() of Highway 1.0.3 gives zeros for 32 bytes with AVX-512.
  const hn::RebindToSigned<decltype(words)> positive;
  const auto narrow = hn::DemoteTo(halves, hn::BitCast(positive, bits));
  hn::StoreU(narrow, halves, reinterpret_cast<std::uint16_t*>(to));
}

// Not a vector's worth. Not inline: loops call them once, at their end.
HWY_NOINLINE inline Vector<float> widened_tail(const bf16* from, i64 count) {
  HWY_ALIGN float wide[lanes<float>] = {};
  convert_all(count, from, wide);
  return hn::Load(Tag<float>{}, wide);
}

HWY_NOINLINE inline void rounded_tail(Vector<float> value, bf16* to, i64 count) {
  HWY_ALIGN float wide[lanes<float>];
  hn::Store(value, Tag<float>{}, wide);
  convert_all(count, wide, to);
}

}  // namespace detail

// The first min(count, lanes) elements at `from`; the remaining lanes are zero.
template <class S>
HWY_INLINE Vector<Accumulator<S>> load(const S* from, i64 count) {
  constexpr i64 n = lanes<Accumulator<S>>;
  if constexpr (std::is_same_v<S, bf16>) {
    return count >= n ? detail::widened(Tag<float>{}, from) : detail::widened_tail(from, count);
  } else {
    const Tag<S> d;
    if (count >= n) return hn::LoadU(d, from);
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, from);
  }
}

template <class S>
HWY_INLINE void store(Vector<Accumulator<S>> value, S* to, i64 count) {
  constexpr i64 n = lanes<Accumulator<S>>;
  if constexpr (std::is_same_v<S, bf16>) {
    count >= n ? detail::rounded(Tag<float>{}, value, to) : detail::rounded_tail(value, to, count);
  } else {
    const Tag<S> d;
    if (count >= n) return hn::StoreU(value, d, to);
    hn::BlendedStore(value, hn::FirstN(d, static_cast<std::size_t>(count)), d, to);
  }
}

// Whether the build has AVX512-BF16: products of pairs of bf16, summed in f32.
inline constexpr bool has_bf16_dot = WEFT_BF16_DOT;
// Whether it has AMX, too; see runtime/amx.h.
inline constexpr bool has_amx = WEFT_AMX;

// As many elements as D has lanes, in D's type; stored, they are rounded once.
template <class D, class S>
HWY_INLINE hn::Vec<D> load_as(D d, const S* from) {
  if constexpr (std::is_same_v<S, bf16>) {
    return detail::widened(d, from);
  } else {
    return hn::LoadU(d, from);
  }
}
template <class D, class S>
HWY_INLINE void store_as(D d, hn::Vec<D> x, S* to) {
  if constexpr (std::is_same_v<S, bf16>) {
    detail::rounded(d, x, to);
  } else {
    hn::StoreU(x, d, to);
  }
}

// Lane i is true where bit i is set.
template <class T>
HWY_INLINE auto mask_of_bits(std::uint64_t bits) {
  return hn::LoadMaskBits(Tag<T>{}, reinterpret_cast<const std::uint8_t*>(&bits));
}

template <class T>
HWY_INLINE T sum_of_lanes(Vector<T> value) {
  return hn::GetLane(hn::SumOfLanes(Tag<T>{}, value));
}

namespace detail {

// 2^(x + rest) in f32 where |rest| < 1/1000. −∞, ∞ and NaN are exact.
//
// With AVX-512 x = n + i/16 + f, with integer n, i < 16 and 0 <= f < 1/16: 2^(i/16) from a table
// and 2^f by the minimax polynomial of degree 3, to 3e-9, leave the multiply units free for other
// work. VREDUCEPS computes f (0 for an infinity), and VSCALEFPS multiplies by 2^⌊x⌋. Without it x =
// n + f, |f| <= 1/2, and the polynomial is of degree 6, with coefficients in f32 to 2e-8; the
// second operand of Min and Max propagates NaN.
template <class V>
HWY_INLINE V power_of_two(V x, V rest) {
  const Tag<float> d;
  if constexpr (HWY_TARGET <= HWY_AVX3) {
    alignas(64) static constexpr float powers[16] = {
        1.0f,       1.0442737f, 1.0905077f, 1.1387886f, 1.1892071f, 1.2418578f,
        1.2968396f, 1.3542556f, 1.4142135f, 1.4768262f, 1.5422108f, 1.6104903f,
        1.6817929f, 1.7562522f, 1.8340081f, 1.9152066f};
    constexpr int down = 9;                         // to −∞, no exceptions
    const V in_sixteenths = hn::Set(d, 786432.0f);  // 1.5 · 2¹⁹: the last bits of the sum are i
    const V sum{_mm512_add_round_ps(x.raw, in_sixteenths.raw, down)};
    const V power{_mm512_permutexvar_ps(_mm512_castps_si512(sum.raw), hn::Load(d, powers).raw)};
    const V f = hn::Add(V{_mm512_reduce_ps(x.raw, (4 << 4) + down)}, rest);
    const V slope = hn::MulAdd(hn::MulAdd(hn::Set(d, 5.6672980e-2f), f, hn::Set(d, 2.4018398e-1f)),
                               f, hn::Set(d, 6.9314760e-1f));
    return V{_mm512_scalef_ps(hn::MulAdd(hn::Mul(power, f), slope, power).raw, x.raw)};
  } else {
    const V bounded = hn::Max(hn::Set(d, -151.0f), hn::Min(hn::Set(d, 129.0f), x));
    const V n = hn::Round(bounded), f = hn::Add(hn::Sub(bounded, n), rest);
    V power = hn::Set(d, 1.5345812e-4f);
    for (const float c :
         {1.3399931e-3f, 9.6184890e-3f, 5.5503288e-2f, 2.4022647e-1f, 6.9314721e-1f, 1.0f}) {
      power = hn::MulAdd(power, f, hn::Set(d, c));
    }
    const hn::RebindToSigned<Tag<float>> whole;  // 2ⁿ itself need not be a normal number
    const auto part = [&](auto exponent) {
      return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(whole, 127))));
    };
    const auto exponent = hn::ConvertTo(whole, n), half = hn::ShiftRight<1>(exponent);
    return hn::Mul(hn::Mul(power, part(half)), part(hn::Sub(exponent, half)));
  }
}

// e^x = 2^(x log₂e), with the rounding error of the product compensated. With AVX-512 Highway's own
// takes three times as long, and softmax over narrow heads is bound by it.
template <class V>
HWY_INLINE V exp_f32(V x) {
  const Tag<float> d;
  const V bounded = hn::Max(hn::Set(d, -104.0f), hn::Min(hn::Set(d, 89.0f), x));
  const V log2e = hn::Set(d, 1.44269504f), rest = hn::Set(d, 1.92596299e-8f);
  const V power = hn::Mul(bounded, log2e);
  return power_of_two(power, hn::MulAdd(bounded, rest, hn::MulSub(bounded, log2e, power)));
}

}  // namespace detail

// e^x to 1.2 ulp. Highway's own, used in f64, maps NaN to 0 and is undefined on overflow.
template <Real T>
HWY_INLINE Vector<T> exp(Vector<T> x) {
  if constexpr (std::is_same_v<T, float>) {
    return detail::exp_f32(x);
  } else {
    const Tag<T> d;
    const auto bound = hn::Set(d, T(710));  // e^710 is infinite
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, hn::Min(x, bound)));
  }
}

// 2^x to 1.1 ulp in f32 and to |x| ulp in f64. −∞, ∞ and NaN are exact, as in exp.
template <Real T>
HWY_INLINE Vector<T> exp2(Vector<T> x) {
  if constexpr (std::is_same_v<T, float>) {
    return detail::power_of_two(x, hn::Zero(Tag<T>{}));
  } else {
    return exp<T>(hn::Mul(x, hn::Set(Tag<T>{}, T(0.69314718055994530942))));
  }
}

// ln x to 1 ulp; Highway's own is defined for positive finite numbers only.
template <class T>
HWY_INLINE Vector<T> log(Vector<T> x) {
  const Tag<T> d;
  const auto zero = hn::Zero(d), infinite = hn::Inf(d);
  const auto positive = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinite), hn::Log(d, x));
  const auto beyond = hn::IfThenElse(hn::Lt(x, zero), hn::NaN(d), x);
  const auto finite = hn::And(hn::Ge(x, zero), hn::Lt(x, infinite));
  return hn::IfThenElse(finite, positive, beyond);
}

// 1 / (1 + e^−x)
template <class T>
HWY_INLINE Vector<T> sigmoid(Vector<T> x) {
  const auto one = hn::Set(Tag<T>{}, T(1));
  return hn::Div(one, hn::Add(one, simd::exp<T>(hn::Neg(x))));
}

// Σ_i a_i b_i in a fixed order.
template <class T>
HWY_INLINE T dot(const T* a, const T* b, i64 count) {
  Vector<T> sum = hn::Zero(Tag<T>{});
  for (i64 i = 0; i < count; i += lanes<T>) {
    sum = hn::MulAdd(load<T>(a + i, count - i), load<T>(b + i, count - i), sum);
  }
  return sum_of_lanes<T>(sum);
}

// Σ_i x_i in a fixed order.
template <class T>
HWY_INLINE T sum(const T* x, i64 count) {
  Vector<T> sums = hn::Zero(Tag<T>{});
  for (i64 i = 0; i < count; i += lanes<T>) sums = hn::Add(sums, load<T>(x + i, count - i));
  return sum_of_lanes<T>(sums);
}

// y_i += factor x_i
template <class T>
HWY_INLINE void add_scaled(T factor, const T* x, T* y, i64 count) {
  const Tag<T> d;
  const auto f = hn::Set(d, factor);
  i64 i = 0;
  for (; i + lanes<T> <= count; i += lanes<T>) {
    hn::StoreU(hn::MulAdd(f, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
  if (i == count) return;
  const i64 rest = count - i;
  store<T>(hn::MulAdd(f, load<T>(x + i, rest), load<T>(y + i, rest)), y + i, rest);
}

// Σ_i x_i accumulated in f64, in a fixed order.
template <class S>
HWY_INLINE double sum_in_f64(const S* x, i64 count) {
  const Tag<double> d;
  constexpr i64 n = lanes<double>;
  const auto widened = [&](const S* from) {
    const hn::Rebind<float, Tag<double>> floats;
    if constexpr (std::is_same_v<S, double>) {
      return hn::LoadU(d, from);
    } else if constexpr (std::is_same_v<S, bf16>) {
      return hn::PromoteTo(d, detail::widened(floats, from));
    } else {
      return hn::PromoteTo(d, hn::LoadU(floats, from));
    }
  };
  Vector<double> sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  i64 i = 0;
  for (; i + 4 * n <= count; i += 4 * n) {
    for (int k = 0; k < 4; ++k) sum[k] = hn::Add(sum[k], widened(x + i + k * n));
  }
  for (; i + n <= count; i += n) sum[0] = hn::Add(sum[0], widened(x + i));
  double total =
      sum_of_lanes<double>(hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])));
  for (; i < count; ++i) total += convert<double>(x[i]);
  return total;
}

}  // namespace weft::simd
