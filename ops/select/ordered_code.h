// Floats as integers of the same order.
#pragma once

#include <bit>
#include <cstdint>

namespace weft {

// The unsigned integer with the size of T.
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

// Monotonic in x. Every NaN has the same, largest code, both zeros have one code, and code 0 is
// unused.
template <class T>
constexpr Bits<T> ordered_code(T x) {
  constexpr Bits<T> sign = Bits<T>{1} << (8 * sizeof(T) - 1);
  if (x != x) return ~Bits<T>{0};
  const auto bits = std::bit_cast<Bits<T>>(x + T(0));  // −0 + 0 = +0
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

// The x of a code; +0 for zeros, and a NaN.
template <class T>
constexpr T ordered_value(Bits<T> code) {
  constexpr Bits<T> sign = Bits<T>{1} << (8 * sizeof(T) - 1);
  return std::bit_cast<T>((code & sign) != 0 ? code ^ sign : ~code);
}

}  // namespace weft
