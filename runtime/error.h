// Errors: one exception type, thrown by require().
//
// A message says which op or file, what it wanted, what it got and what to do:
//     require(x.rank() == 3, "layer_norm: wanted [B, N, d], got {}; reshape the input", x.shape());
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace weft {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Error with the formatted message unless `condition` holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (!condition) [[unlikely]] {
    throw Error(fmt::format(message, std::forward<Args>(args)...));
  }
}

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw Error(fmt::format(message, std::forward<Args>(args)...));
}

}  // namespace weft
