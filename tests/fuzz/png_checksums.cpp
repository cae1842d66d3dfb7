// libFuzzer's mutation of a PNG picture: any bytes, but most times the checksums of the chunks are
// corrected. libpng stops at a wrong one.
#include <cstdint>
#include <cstring>

#include <zlib.h>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

std::uint32_t big_endian(std::uint32_t value) { return __builtin_bswap32(value); }

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (seed % 8 == 0) return size;
  // After a signature of 8 bytes a chunk is a length, a name of 4 bytes, contents and a checksum.
  for (std::size_t at = 8, around = 12; at + around <= size;) {
    std::uint32_t length = 0;
    std::memcpy(&length, data + at, 4);
    length = big_endian(length);
    if (length > size - at - around) break;
    const auto sum = static_cast<std::uint32_t>(crc32(0, data + at + 4, length + 4));
    const std::uint32_t stored = big_endian(sum);
    std::memcpy(data + at + 8 + length, &stored, 4);
    at += around + length;
  }
  return size;
}
