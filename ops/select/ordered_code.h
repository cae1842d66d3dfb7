// Floats as whole numbers of the same order.
#pragma once

#include <bit>
#include <cstdint>

namespace weft {

// The unsigned number that has as many bits as T.
template <class T>
struct BitsOf;
template <>
struct BitsOf<float> {
  using Type = std::uint32_t;
};
template <>
struct BitsOf<double> {
  using Type = std::uint64_t;
};
template <class T>
using Bits = typename BitsOf<T>::Type;

// Rises with x. Every NaN is the one largest, both zeros are one, and nothing is as low as 0.
template <class T>
constexpr Bits<T> ordered_code(T x) {
  constexpr Bits<T> sign = Bits<T>{1} << (8 * sizeof(T) - 1);
  if (x != x) return ~Bits<T>{0};
  const auto bits = std::bit_cast<Bits<T>>(x + T(0));  // −0 + 0 = +0
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

// The x of a code; +0 of zeros, and a NaN.
template <class T>
constexpr T ordered_value(Bits<T> code) {
  constexpr Bits<T> sign = Bits<T>{1} << (8 * sizeof(T) - 1);
  return std::bit_cast<T>((code & sign) != 0 ? code ^ sign : ~code);
}

}  // namespace weft
