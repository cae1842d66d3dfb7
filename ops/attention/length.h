// Lengths in kernels: B numbers, or null.
#pragma once

#include <cstdint>

#include "runtime/types.h"

namespace weft {

// The length of batch item b, clamped to 0 … all; `all` if there are none.
constexpr i64 length_of(const i64* lengths, i64 b, i64 all) {
  if (lengths == nullptr || lengths[b] > all) return all;
  return lengths[b] < 0 ? 0 : lengths[b];
}

}  // namespace weft
