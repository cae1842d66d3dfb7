// What differs between the element types of kernels.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/types.h"

namespace weft {

// A constant of T: one for f32, another for f64. There is none for other types.
template <Real T, class Value>
constexpr Value by_type(Value f32, Value f64) {
  return std::is_same_v<T, float> ? f32 : f64;
}

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

}  // namespace weft
