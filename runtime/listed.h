// Elements as text, one after the other, as an argument of a message.
//
// The tree includes no more of fmt than fmt/core.h: fmt/format.h, which has fmt::join, compiles
// fmt's own formatting of numbers again in every file, in more time than most files take.
#pragma once

#include <string>
#include <string_view>

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

}  // namespace weft

template <class Range>
struct fmt::formatter<weft::Listed<Range>> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const weft::Listed<Range>& listed, Context& context) const {
    return fmt::format_to(context.out(), "{}", listed.text());
  }
};
