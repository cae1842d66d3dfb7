// For masked scores, and for the log-sum-exps of rows without any visible key.
#pragma once

#include <limits>

namespace weft {

template <class T>
inline constexpr T infinity = std::numeric_limits<T>::infinity();

}  // namespace weft
