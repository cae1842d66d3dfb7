// Elements as text, one after the other, as an argument of a message; and the elements of a text.
//
// The tree includes no more of fmt than fmt/core.h: fmt/format.h, which has fmt::join, compiles
// fmt's own formatting of numbers again in every file, in more time than most files take.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

namespace weft {

// Refers to the elements. Nothing is formatted before the text is needed.
template <class Range>
struct Listed {
  const Range& range;
  std::string_view between;

  std::string text() const {
    std::string all;
    bool first = true;
    for (const auto& element : range) {
      if (!first) all += between;
      all += fmt::format("{}", element);
      first = false;
    }
    return all;
  }
};

template <class Range>
Listed<Range> listed(const Range& range, std::string_view between = ", ") {
  return {range, between};
}

// The parts of a text between separators: one more than there are of these.
inline std::vector<std::string> parts_between(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace weft

template <class Range>
struct fmt::formatter<weft::Listed<Range>> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const weft::Listed<Range>& listed, Context& context) const {
    return fmt::format_to(context.out(), "{}", listed.text());
  }
};
