#include "runtime/one_line.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <fmt/core.h>

namespace weft {
namespace {

constexpr std::size_t longest_word = 200, word_begin = 120, word_end = 60;
constexpr std::size_t longest_line = 1500, line_begin = 1000, line_end = 400;

using Characters = std::vector<std::string>;  // as they are printed

// The length in bytes of the UTF-8 character at the beginning of the text, and its code point; 0
// for invalid UTF-8: a byte out of order, an overlong form, a surrogate.
std::size_t decoded(std::string_view text, std::uint32_t& point) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t size = byte(0) < 0x80       ? 1
                           : byte(0) >> 5 == 6  ? 2
                           : byte(0) >> 4 == 14 ? 3
                           : byte(0) >> 3 == 30 ? 4
                                                : 0;
  if (size == 0 || size > text.size()) return 0;
  point = size == 1 ? byte(0) : byte(0) & (0x7fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    point = point << 6 | (byte(i) & 0x3f);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xd800 && point < 0xe000;
  return point < least[size] || point > 0x10ffff || surrogate ? 0 : size;
}

// Not printable: controls, line separators, and marks that change the direction of writing.
bool printable(std::uint32_t point) {
  const auto within = [&](std::uint32_t first, std::uint32_t last) {
    return first <= point && point <= last;
  };
  return point >= 0x20 && !within(0x7f, 0x9f) && !within(0x200e, 0x200f) &&
         !within(0x2028, 0x202e) && !within(0x2066, 0x2069) && point != 0xfeff;
}

Characters escaped(std::string_view text) {
  Characters all;
  while (!text.empty()) {
    std::uint32_t point = 0;
    const std::size_t known = decoded(text, point), size = known > 0 ? known : 1;
    if (known > 0 && printable(point)) {
      all.emplace_back(text.substr(0, size));
    } else if (text[0] == '\n' || text[0] == '\r' || text[0] == '\t') {
      all.emplace_back(text[0] == '\n' ? "\\n" : text[0] == '\r' ? "\\r" : "\\t");
    } else {
      for (const char byte : text.substr(0, size)) {
        all.push_back(fmt::format("\\x{:02x}", static_cast<unsigned char>(byte)));
      }
    }
    text.remove_prefix(size);
  }
  return all;
}

// `all` with its middle elided where it is longer than `most`; `first` and `last` characters stay.
Characters shortened(const Characters& all, std::size_t most, std::size_t first, std::size_t last) {
  if (all.size() <= most) return all;
  const auto end = all.end() - static_cast<std::ptrdiff_t>(last);
  Characters kept(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first));
  kept.emplace_back("…");
  kept.insert(kept.end(), end, all.end());
  return kept;
}

}  // namespace

std::string one_line(std::string_view message) {
  Characters line, word;
  const auto end_word = [&] {
    const Characters some = shortened(word, longest_word, word_begin, word_end);
    line.insert(line.end(), some.begin(), some.end());
    word.clear();
  };
  for (const std::string& character : escaped(message)) {
    if (character == " ") {
      end_word();
      line.push_back(character);
    } else {
      word.push_back(character);
    }
  }
  end_word();
  std::string text;
  for (const std::string& character : shortened(line, longest_line, line_begin, line_end)) {
    text += character;
  }
  return text;
}

}  // namespace weft
