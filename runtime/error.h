// Errors: one exception type, thrown by require().
//
// A message says which op or file, what it wanted, what it got and what to do:
//     require(x.rank() == 3, "layer_norm: wanted [B, N, d], got {}; reshape the input", x.shape());
#pragma once

#include <stdexcept>
#include <string>

#include <fmt/core.h>

namespace weft {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a device could not do although the request was valid: out of memory, a failure that CUDA
// reports. The op that asked for it adds its name and shapes.
class DeviceError : public Error {
 public:
  using Error::Error;
};

class OutOfMemory : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

namespace detail {
// Formats out of line, so that a call of require() compiles to a comparison and a list of
// references.
[[noreturn]] void throw_error(fmt::string_view message, fmt::format_args args);
}  // namespace detail

// Throws Error with the formatted message unless `condition` holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (!condition) [[unlikely]] detail::throw_error(message, fmt::make_format_args(args...));
}

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  detail::throw_error(message, fmt::make_format_args(args...));
}

}  // namespace weft
