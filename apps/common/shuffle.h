// Orders of examples.
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/random.h"
#include "runtime/types.h"

namespace weft {

// 0 … count − 1, each order with the same chance, as `key` has it (R. A. Fisher, F. Yates 1938).
inline std::vector<i64> shuffled(i64 count, const RandomKey& key) {
  std::vector<i64> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    const std::uint32_t j = below(key.words(i).word[0], static_cast<std::uint32_t>(i));
    std::swap(order[i - 1], order[j]);
  }
  return order;
}

}  // namespace weft
