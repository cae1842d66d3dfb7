// The one short name for a number: sizes, strides, positions and indices are signed and of 64 bits.
// And the element types that kernels compute in.
#pragma once

#include <concepts>
#include <cstdint>

namespace weft {

using i64 = std::int64_t;

// A condition on float or double: any other type is a compile error.
template <class T>
concept Real = std::same_as<T, float> || std::same_as<T, double>;

}  // namespace weft
