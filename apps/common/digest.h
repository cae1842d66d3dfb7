// What tells one content from another: not cryptographic.
#pragma once

#include <span>
#include <string>

namespace weft {

// XXH3, 64 bits, as 16 hexadecimal digits.
std::string digest(std::span<const std::byte> bytes);

// Of the two halves of what a training sees: its pictures and their labels, say.
template <class First, class Second>
std::string data_digest(const First& first, const Second& second) {
  return digest(std::as_bytes(std::span(first))) + digest(std::as_bytes(std::span(second)));
}

}  // namespace weft
