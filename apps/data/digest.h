// Checksums of contents; not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace weft {

// XXH3, 64 bits, as 16 hexadecimal digits.
std::string digest(std::span<const std::byte> bytes);
// The same of a file, read in blocks.
std::string digest_of_file(const std::string& path);

// The same of the low byte of each value.
std::string digest_of_low_bytes(std::span<const std::uint16_t> values);

// The checksum of two parts of training data: pictures and labels, for example.
template <class First, class Second>
std::string data_digest(const First& first, const Second& second) {
  return digest(std::as_bytes(std::span(first))) + digest(std::as_bytes(std::span(second)));
}

}  // namespace weft
