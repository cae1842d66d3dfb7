// IEEE binary16 ("half", f16), found in files of other programs: it is converted to f32, which
// represents each of its values exactly, and never written.
//
//     1 bit sign s | 5 bits exponent e | 10 bits mantissa m
//     e = 0        (−1)^s · m · 2⁻²⁴
//     0 < e < 31   (−1)^s · (1024 + m) · 2^(e−25)
//     e = 31       (−1)^s · ∞ where m = 0, else NaN
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "nn/file.h"
#include "runtime/tensor.h"

namespace weft {

constexpr std::size_t size_of_half = 2;

constexpr float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half} >> 15 << 31, exponent = half >> 10 & 31u,
                      mantissa = half & 1023u;
  if (exponent == 0) {
    const float size = static_cast<float>(mantissa) * 0x1p-24f;
    return sign == 0 ? size : -size;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

// Reads as many halves as `tensor`, which is packed and f32, has elements. They are read into the
// second half of its bytes and converted from the front: half number i is read before its bytes are
// overwritten.
inline void read_halves(InputFile& file, const Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.count());
  std::byte* const bytes = tensor.bytes();
  const std::byte* const halves = bytes + count * size_of_half;
  file.read({bytes + count * size_of_half, count * size_of_half});
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t half;
    std::memcpy(&half, halves + i * size_of_half, sizeof half);
    const float value = float_of_half(half);
    std::memcpy(bytes + i * sizeof value, &value, sizeof value);
  }
}

// The element type of a tensor in a file, and the one it is converted to.
struct StoredType {
  DType dtype = DType::f32;
  bool half = false;  // f16 in the file, f32 here

  const char* name() const { return half ? "f16" : name_of(dtype); }
  std::uint64_t bytes(const Shape& shape) const {  // in the file
    return static_cast<std::uint64_t>(shape.count()) * (half ? size_of_half : size_of(dtype));
  }
  // The next tensor of the file, packed.
  void read(InputFile& file, const Tensor& tensor) const {
    if (half) return read_halves(file, tensor);
    file.read({tensor.bytes(), static_cast<std::size_t>(bytes(tensor.shape()))});
  }
};

}  // namespace weft
