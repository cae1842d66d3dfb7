#include "runtime/one_line.h"

#include "doctest/doctest.h"

namespace weft {
namespace {

TEST_SUITE("runtime") {

TEST_CASE("one line: what is printable stays as it is") {
  for (const std::string text : {"", "a plain message: wanted 1 … 2, got [3,4]",
                                 "Grüße, 世界, 🙂 and µ", "  two  spaces "}) {
    CHECK(one_line(text) == text);
  }
}

TEST_CASE("one line: the rest is escaped, byte by byte where it is no UTF-8") {
  CHECK(one_line("a\nb\r\tc") == "a\\nb\\r\\tc");
  CHECK(one_line(std::string("\x1b[31mred\0\x7f", 9)) == "\\x1b[31mred\\x00");
  CHECK(one_line("\x7f\xff\xc3(") == "\\x7f\\xff\\xc3(");
  CHECK(one_line("\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80") ==  // overlong, surrogate, too large
        "\\xc0\\xaf \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80");
  CHECK(one_line("\xe4\xb8") == "\\xe4\\xb8");  // truncated
  CHECK(one_line("\u0085\u2028\u202e") == "\\xc2\\x85\\xe2\\x80\\xa8\\xe2\\x80\\xae");
}

TEST_CASE("one line: long words and long lines keep their beginning and their end") {
  const std::string long_word = "begin" + std::string(5000, 'x') + "end";
  const std::string shown = one_line("--lr: wanted a number, got " + long_word + "; do this");
  CHECK(shown.size() < 300);
  CHECK(shown.starts_with("--lr: wanted a number, got beginxxx"));
  CHECK(shown.ends_with("xxxend; do this"));
  CHECK(shown.find("…") != std::string::npos);
  const std::string word(200, 'x');
  CHECK(one_line(word) == word);
  std::string words;
  for (int i = 0; i < 5000; ++i) words += "ä ";
  const std::string cut = one_line("first " + words + "last");
  CHECK(cut.size() < 3000);
  CHECK(cut.starts_with("first ä"));
  CHECK(cut.ends_with("ä last"));
  for (const std::string& part : {shown, cut}) CHECK(one_line(part) == part);  // still UTF-8
}

}  // TEST_SUITE("runtime")
}  // namespace
}  // namespace weft
