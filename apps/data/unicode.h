// Text in UTF-8, by GNU libunistring: what word pieces need to know of Unicode.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Throws, naming `source` and the byte, unless `text` is well-formed UTF-8: no overlong forms, no
// surrogates, nothing above U+10FFFF, nothing cut short.
void check_utf8(std::string_view text, const std::string& source);

bool is_utf8(std::string_view text);
std::string utf8(char32_t code_point);  // which is one: below U+110000, and no surrogate

struct CodePoint {
  char32_t value;
  std::size_t bytes;
};

// The code point that begins at `at`, which lies inside `text`. Well-formed UTF-8.
CodePoint code_point(std::string_view text, std::size_t at);
// The same in any bytes: U+FFFD, of one byte, where none begins.
CodePoint code_point_of_any(std::string_view text, std::size_t at);

// White space as Python's str.isspace() and the \s of its regular expressions have it.
bool is_space(char32_t c);
// A decimal digit of any script (general category Nd), as the \d of Python's expressions.
bool is_digit(char32_t c);
// The general categories L and N.
bool is_letter(char32_t c);
bool is_number(char32_t c);
// `text` in lower case by Unicode's full mapping, with the final sigma: Python's str.lower().
std::string lower(std::string_view text);

}  // namespace weft
