#include "apps/common/digest.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "nn/file.h"

namespace weft {

std::string digest(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::string digest_of_low_bytes(std::span<const std::uint16_t> values) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                             XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (std::size_t begin = 0; begin < values.size();) {
    std::array<std::uint8_t, 65536> bytes;
    const std::size_t count = std::min(bytes.size(), values.size() - begin);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(values[begin + i]);
    XXH3_64bits_update(state.get(), bytes.data(), count);
    begin += count;
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

std::string digest_of_file(const std::string& path) {
  constexpr std::uint64_t most = 1 << 16;
  InputFile file(path);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<std::byte> buffer(most);
  for (std::uint64_t left = file.size(); left > 0;) {
    const std::span<std::byte> part(buffer.data(), std::min(left, most));
    file.read(part);
    XXH3_64bits_update(state.get(), part.data(), part.size());
    left -= part.size();
  }
  file.check_unchanged();
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

}  // namespace weft
