#include "apps/common/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace weft {

std::string digest(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace weft
