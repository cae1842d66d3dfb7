#include "apps/data/digest.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <fmt/core.h>
#include <xxhash.h>

#include "nn/file.h"

namespace weft {
namespace {

constexpr std::size_t held_bytes = 1 << 16;

// Streaming XXH3.
class Digest {
 public:
  Digest() { XXH3_64bits_reset(state_.get()); }
  void add(const void* data, std::size_t bytes) {
    XXH3_64bits_update(state_.get(), data, bytes);
  }
  std::string text() const { return fmt::format("{:016x}", XXH3_64bits_digest(state_.get())); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
};

}  // namespace

std::string digest(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::string digest_of_low_bytes(std::span<const std::uint16_t> values) {
  Digest digest;
  std::array<std::uint8_t, held_bytes> bytes;
  while (!values.empty()) {
    const auto piece = values.first(std::min(bytes.size(), values.size()));
    std::transform(piece.begin(), piece.end(), bytes.begin(),
                   [](std::uint16_t value) { return static_cast<std::uint8_t>(value); });
    digest.add(bytes.data(), piece.size());
    values = values.subspan(piece.size());
  }
  return digest.text();
}

std::string digest_of_file(const std::string& path) {
  InputFile file(path);
  Digest digest;
  std::vector<std::byte> buffer(held_bytes);
  for (std::uint64_t left = file.size(); left > 0;) {
    const std::span<std::byte> part(buffer.data(), std::min<std::uint64_t>(left, held_bytes));
    file.read(part);
    digest.add(part.data(), part.size());
    left -= part.size();
  }
  file.check_unchanged();
  return digest.text();
}

}  // namespace weft
