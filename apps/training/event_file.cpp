#include "apps/training/event_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "runtime/error.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "the records are little endian");

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

enum Kind : std::uint64_t { number = 0, eight_bytes = 1, counted = 2, four_bytes = 5 };

std::string field(std::uint64_t place, Kind kind, const std::string& value) {
  return varint(place * 8 + kind) + (kind == counted ? varint(value.size()) : "") + value;
}

std::string masked_checksum(std::string_view bytes) {
  return bytes_of(std::rotr(crc32c(bytes), 15) + 0xA282EAD8u);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> remainders{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t rest = byte;
      for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ (rest & 1 ? 0x82F63B78u : 0);
      remainders[byte] = rest;
    }
    return remainders;
  }();
  std::uint32_t rest = ~0u;
  for (const char byte : bytes) {
    rest = (rest >> 8) ^ table[(rest ^ static_cast<unsigned char>(byte)) & 255];
  }
  return ~rest;
}

EventFile::EventFile(const std::string& path, double wall_time)
    : path_(path), file_(path, std::ios::binary) {
  require(file_.is_open(), "{}: cannot be written: {}", path, std::strerror(errno));
  write(field(1, eight_bytes, bytes_of(wall_time)) + field(3, counted, "brain.Event:2"));
}

void EventFile::add(double wall_time, i64 step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    summary += field(1, counted, field(1, counted, tag) + field(2, four_bytes, bytes_of(value)));
  }
  add_summary(wall_time, step, summary);
}

void EventFile::add_text(double wall_time, i64 step, const std::string& tag,
                         const std::string& text) {
  constexpr std::uint64_t strings = 7;  // DT_STRING
  const std::string tensor =
      field(1, number, varint(strings)) + field(2, counted, "") + field(8, counted, text);
  const std::string plugin = field(1, counted, field(1, counted, "text"));
  add_summary(
      wall_time, step,
      field(1, counted,
            field(1, counted, tag) + field(8, counted, tensor) + field(9, counted, plugin)));
}

void EventFile::add_summary(double wall_time, i64 step, const std::string& summary) {
  write(field(1, eight_bytes, bytes_of(wall_time)) +
        field(2, number, varint(static_cast<std::uint64_t>(step))) + field(5, counted, summary));
}

void EventFile::write(std::string_view message) {
  const std::string length = bytes_of(std::uint64_t{message.size()});
  file_ << length << masked_checksum(length) << message << masked_checksum(message) << std::flush;
  require(file_.good(), "{}: writing failed: {}", path_, std::strerror(errno));
}

std::vector<Scalar> scalars_of(const Json& line) {
  std::string group;
  for (const char* const name : {"kind", "windows"}) {
    std::string word;
    if (const Json* const found = line.find(name); found != nullptr && found->take(word)) {
      group += word + "/";
    }
  }
  constexpr std::string_view places[] = {"step",   "epoch",   "round",
                                         "tokens", "elapsed", "remaining"};
  std::vector<Scalar> scalars;
  for (const auto& [key, value] : line.members()) {
    double number = 0;
    if (!value.take(number) || std::ranges::count(places, key) > 0) continue;
    scalars.push_back({group + key, static_cast<float>(number)});
  }
  return scalars;
}

}  // namespace weft
