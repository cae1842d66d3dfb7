// UTF-8 and character properties for word pieces, from GNU libunistring.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Throws, naming `source` and the byte, unless `text` is well-formed UTF-8: no overlong forms,
// surrogates, code points above U+10FFFF or truncated characters.
void check_utf8(std::string_view text, const std::string& source);

bool is_utf8(std::string_view text);
std::string utf8(char32_t code_point);  // requires a code point below U+110000, not a surrogate

struct CodePoint {
  char32_t value;
  std::size_t bytes;
};

// The code point that begins at `at`, inside `text`. Requires well-formed UTF-8.
CodePoint code_point(std::string_view text, std::size_t at);
// The same in arbitrary bytes: U+FFFD with a length of one byte if no code point begins at `at`.
CodePoint code_point_of_any(std::string_view text, std::size_t at);

// White space, as Python's str.isspace() and \s in its regular expressions define it.
bool is_space(char32_t c);
// A decimal digit of any script (general category Nd), as \d in Python's regular expressions.
bool is_digit(char32_t c);
// A letter or number (general categories L and N).
bool is_letter(char32_t c);
bool is_number(char32_t c);
// `text` in lower case by Unicode's full mapping, with the final sigma: Python's str.lower().
std::string lower(std::string_view text);

}  // namespace weft
