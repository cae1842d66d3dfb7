// The one short name for a number: sizes, strides, positions and indices are signed and of 64 bits.
#pragma once

#include <cstdint>

namespace weft {

using i64 = std::int64_t;

}  // namespace weft
