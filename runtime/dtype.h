// Element types. Every differentiable op computes in f32 and f64; bf16 is a type of storage, whose
// sums are f32 (autograd/apply.h).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "runtime/types.h"

namespace weft {

enum class DType : std::uint8_t { f32, f64, bf16, i32, i64, u8 };

// bfloat16: the upper half of a float; conversion from float rounds to nearest, ties to even.
struct bf16 {
  std::uint16_t bits = 0;

  constexpr bf16() = default;
  constexpr explicit bf16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? static_cast<std::uint16_t>((word >> 16) | 0x40u)
               : static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  // Computed in f32, rounded once.
  friend constexpr bf16 operator+(bf16 a, bf16 b) {
    return bf16(static_cast<float>(a) + static_cast<float>(b));
  }
};

// A value in another element type.
template <class To, class From>
constexpr To convert(From value) {
  if constexpr (std::is_same_v<From, bf16>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bf16>) {
    return bf16(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

// to[i] = from[i] in another type, contiguous: a loop that compilers vectorise.
template <class From, class To>
void convert_all(i64 count, const From* from, To* to) {
  for (i64 i = 0; i < count; ++i) to[i] = convert<To>(from[i]);
}

constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f32: return 4;
    case DType::f64: return 8;
    case DType::bf16: return 2;
    case DType::i32: return 4;
    case DType::i64: return 8;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
  }
  return "?";
}

constexpr bool is_floating(DType type) {
  return type == DType::f32 || type == DType::f64 || type == DType::bf16;
}

// The type of sums over elements of a floating type S, of scores, statistics and log-sum-exps.
template <class S>
using Accumulator = std::conditional_t<std::is_same_v<S, bf16>, float, S>;
template <class S>
constexpr Accumulator<S> widen(S x) {
  return convert<Accumulator<S>>(x);
}
constexpr DType accumulator_of(DType type) { return type == DType::bf16 ? DType::f32 : type; }

template <class T>
struct NoDType {
  static_assert(sizeof(T) == 0,
                "elements are float, double, bf16, std::int32_t, weft::i64 or std::uint8_t");
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = NoDType<T>::value;

template <> inline constexpr DType dtype_of<float> = DType::f32;
template <> inline constexpr DType dtype_of<double> = DType::f64;
template <> inline constexpr DType dtype_of<bf16> = DType::bf16;
template <> inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <> inline constexpr DType dtype_of<i64> = DType::i64;
template <> inline constexpr DType dtype_of<std::uint8_t> = DType::u8;

}  // namespace weft
