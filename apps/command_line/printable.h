// Text of any bytes, as a terminal can take it.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Passes on UTF-8 text, line ends and tabs; every byte of anything else (control characters, which
// a terminal obeys, and what is not UTF-8) becomes \x and its two hexadecimal digits. The text
// comes in pieces, which may end inside of a character.
class PrintableText {
 public:
  // What can be shown once `more` is there.
  std::string add(std::string_view more);
  // What was held back at the end.
  std::string rest();

 private:
  std::string held_;  // the beginning of a character
};

// The whole of a text.
std::string printable(std::string_view text);

}  // namespace weft
