// Text in lines of limited width.
#pragma once

#include <string>
#include <vector>

namespace weft {

// Width of a line of UTF-8 on a terminal: its number of code points.
std::size_t columns_of(const std::string& text);

// Breaks text between words into lines of at most `width` columns; longer words are split.
std::vector<std::string> wrapped(const std::string& text, std::size_t width);

}  // namespace weft
