// What tells one content from another: not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace weft {

// XXH3, 64 bits, as 16 hexadecimal digits.
std::string digest(std::span<const std::byte> bytes);
// Of all bytes of a file, of which a few are held at a time.
std::string digest_of_file(const std::string& path);

// The same of the values' low bytes.
std::string digest_of_low_bytes(std::span<const std::uint16_t> values);

// Of the two halves of what a training sees: its pictures and their labels, say.
template <class First, class Second>
std::string data_digest(const First& first, const Second& second) {
  return digest(std::as_bytes(std::span(first))) + digest(std::as_bytes(std::span(second)));
}

}  // namespace weft
