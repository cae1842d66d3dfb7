// Constants that differ between the element types of kernels.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/types.h"

namespace weft {

// A constant of T: one value for f32, another for f64; a compile error for other types.
template <Real T, class Value>
constexpr Value by_type(Value f32, Value f64) {
  return std::is_same_v<T, float> ? f32 : f64;
}

}  // namespace weft
