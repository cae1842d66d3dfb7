// Lengths as kernels see them: B numbers, or null.
#pragma once

#include <cstdint>

namespace weft {

// The length of batch item b, kept within 0 … all; `all` where there are none.
constexpr std::int64_t length_of(const std::int64_t* lengths, std::int64_t b, std::int64_t all) {
  if (lengths == nullptr || lengths[b] > all) return all;
  return lengths[b] < 0 ? 0 : lengths[b];
}

}  // namespace weft
