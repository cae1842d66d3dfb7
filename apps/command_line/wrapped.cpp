#include "apps/command_line/wrapped.h"

#include <algorithm>

namespace weft {

std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines = {""};
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const bool first = lines.back().empty();
    if (columns_of(lines.back()) + columns_of(word) + (first ? 0 : 1) <= width) {
      lines.back() += (first ? "" : " ") + word;
    } else {
      if (!first) lines.emplace_back();
      for (const char c : word) {
        if ((c & 0xc0) != 0x80 && columns_of(lines.back()) == width) lines.emplace_back();
        lines.back() += c;
      }
    }
    begin = end + 1;
  }
  return lines;
}

}  // namespace weft
