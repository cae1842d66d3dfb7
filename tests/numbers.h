// Numbers that many tests write.
#pragma once

#include <limits>

namespace weft {

inline constexpr double infinite = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

}  // namespace weft
