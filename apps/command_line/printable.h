// Arbitrary bytes as text that is safe for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Keeps UTF-8 text, line ends and tabs. Every byte of anything else (control characters, which a
// terminal interprets, and invalid UTF-8) becomes \x and two hexadecimal digits. Text may be added
// in parts that end inside a character.
class PrintableText {
 public:
  // Appends `more`; returns the text that is complete.
  std::string add(std::string_view more);
  // The incomplete character at the end, escaped.
  std::string rest();

 private:
  std::string held_;  // the first bytes of a character
};

// Escapes a whole text.
std::string printable(std::string_view text);

}  // namespace weft
