#include "apps/data/word_tokens.h"

#include <vector>

#include "apps/data/unicode.h"
#include "apps/wordlm/generate.h"
#include "doctest/doctest.h"
#include "runtime/random.h"
#include "tests/files.h"

using namespace weft;
using wordlm::settled;

namespace {

// The tokens with a bar between them, numbers as N.
std::string tokens_of(const std::string& line) {
  std::string all;
  WordTokens tokens(line);
  while (const auto token = tokens.next()) {
    all += (all.empty() ? "" : "|") + (token->number ? "N" : std::string(token->text));
  }
  return all;
}

std::string joined(const std::vector<std::string>& words) { return detokenized(words); }

// A line said while its words are written letter by letter.
std::string said(const std::vector<std::string>& words) {
  std::string line, now;
  std::vector<std::string> some;
  for (const std::string& word : words) {
    some.emplace_back();
    for (const char letter : word) {
      some.back() += letter;
      now = joined(some);
      CHECK(now.starts_with(line));
      if (settled(now) > line.size()) line = now.substr(0, settled(now));
    }
  }
  return line + now.substr(line.size());
}

}  // namespace

TEST_SUITE("wordlm") {

TEST_CASE("tokens: what is said of a line that is being written stands in the line") {
  CHECK(settled("the king 's") == 8);
  CHECK(said({"the", "king", "'", "s", "crown", "fell"}) == "the king's crown fell");
  CHECK(said({"the", "mare", "'", "red", "x"}) == "the mare 'red x");
  CHECK(said({"a", "'", "b", "'", "sun", "'", "re", "here"}) == "a 'b' sun're here");
  // Any order of words that change what stands before them.
  const std::vector<std::string> some = {"'", "s", "red", "the", ".", "...", "\"", "(", "ll"};
  for (std::uint32_t draw = 0; draw < 200; ++draw) {
    std::vector<std::string> words;
    for (std::uint64_t i = 0; i < 12; ++i) {
      words.push_back(some[RandomKey{7, draw}.words(i).word[0] % some.size()]);
    }
    CAPTURE(joined(words));
    CHECK(said(words) == joined(words));
  }
}

TEST_CASE("tokens: each form of a number is one token") {
  for (const char* number : {"15%",
                             "15.2%",
                             "15,2%",
                             "1.25",
                             "12,000",
                             "12 1/2",
                             "12 1 / 2",
                             "12  1\u20442",
                             "1 \u00bd",
                             "1\u2150",
                             "1\u215e",
                             "1 \u00b9\u2070/\u2082\u2080",
                             "7\u2074\u2044 \u2089",
                             "3 / 4",
                             "3/4",
                             "\u00be",
                             "\u215f 8",
                             "\u215f8",
                             "\u2072 / \u2083",
                             "1234",
                             "0",
                             "\u0664\u0662",
                             "\u0664.5",
                             "12\u00a01/2"}) {
    CAPTURE(number);
    CHECK(tokens_of(number) == "N");
    CHECK(tokens_of(std::string("x ") + number + " y") == "x|N|y");
  }
}

TEST_CASE("tokens: what is almost a number falls back to a shorter form") {
  CHECK(tokens_of("1.5.2") == "N|.|N");
  CHECK(tokens_of("1,234,567") == "N|,|N");
  CHECK(tokens_of("1.") == "N|.");
  CHECK(tokens_of("1.x") == "N|.|x");
  CHECK(tokens_of("1 %") == "N|%");
  CHECK(tokens_of("12 1") == "N|N");
  CHECK(tokens_of("12 1/") == "N|N|/");
  CHECK(tokens_of("12 1/x") == "N|N|/|x");
  CHECK(tokens_of("1.5 1/2") == "N|N");  // a decimal number takes no fraction
  CHECK(tokens_of("1 2 3/4") == "N|N");  // 1, then 2 3/4
  CHECK(tokens_of("1/2/3") == "N|/|N");
  CHECK(tokens_of("1 \u2074") == "N|\u2074");  // superscripts alone are characters of words
  CHECK(tokens_of("m\u2074") == "m\u2074");
  CHECK(tokens_of("\u215f x") == "\u215f|x");
  CHECK(tokens_of("\u215fx") == "\u215fx");
  CHECK(tokens_of("\u2074/2") == "\u2074|/|N");
  CHECK(tokens_of("5th") == "N|th");
  CHECK(tokens_of("a5") == "a|N");           // an ASCII digit ends a word
  CHECK(tokens_of("a\u0664") == "a\u0664");  // another script's digit does not
}

TEST_CASE("tokens: words, with their short endings") {
  CHECK(tokens_of("the cat's they've I'd don't") == "the|cat's|they've|I'd|don't");
  CHECK(tokens_of("rock'n o'clock") == "rock|'|n|o|'|clock");
  CHECK(tokens_of("we'dest") == "we'de|st");  // at most two letters
  CHECK(tokens_of("we'll") == "we|'|ll");
  CHECK(tokens_of("'s dogs' 's") == "'|s|dogs|'|'|s");
  CHECK(tokens_of("<unk> @-@ a=b $5 x% -") == "<unk>|@-@|a=b|$|N|x%|-");
  CHECK(tokens_of("Zo\u00eb \u2013 \u6771\u4eac") == "Zo\u00eb|\u2013|\u6771\u4eac");
}

TEST_CASE("tokens: punctuation, one character each but for three dots") {
  for (const char c : std::string("\\.,:;{}()[]?!'\"/#*|~+")) {
    const std::string alone(1, c);
    CHECK(tokens_of(alone) == alone);
    CHECK(tokens_of("a" + alone + "b") == "a|" + alone + "|b");
  }
  CHECK(tokens_of("a\u2191b") == "a|\u2191|b");
  CHECK(tokens_of("....") == "...|.");
  CHECK(tokens_of("..") == ".|.");
  CHECK(tokens_of("") == "");
  CHECK(tokens_of(" \t\r\u3000\u2029\x1c") == "");
  CHECK(tokens_of("a\u2003b\u00a0c") == "a|b|c");
}

TEST_CASE("tokens: split marks are taken out once, from left to right") {
  CHECK(without_split_marks("12 @,@ 000 @.@ 5") == "12,000.5");
  CHECK(without_split_marks("play @-@ off\n@\u2013@\ngame") == "play-off\u2013game");
  CHECK(without_split_marks("a\u00a0@-@\u3000b") == "a-b");
  // The space between two marks belongs to the first.
  CHECK(without_split_marks("a @-@ @-@ b") == "a-@-@ b");
  CHECK(without_split_marks("a @@@ b") == "a@b");
  for (const char* plain : {"", "@", " @", " @-", " @-@", "@-@ b", "a @--@ b", "a@-@ b", "a @-@b",
                            "a @\n@ b", " @\u2013@", "a @-", "mail@example.org"}) {
    CAPTURE(plain);
    CHECK(without_split_marks(plain) == plain);
  }
}

TEST_CASE("tokens: text reads well again") {
  CHECK(joined({"the", "cat", ",", "a", "dog", "(", "old", ")", "and", "[", "x", "]", "sat",
                "."}) == "the cat, a dog (old) and [x] sat.");
  CHECK(joined({"he", "said", "\"", "no", "!", "\"", "and", "\"", "yes", "\"", ";", "why", "?"}) ==
        "he said \"no!\" and \"yes\"; why?");
  CHECK(joined({"it", "'", "s", "the", "club", "'", "s", "'", "own", "'", "way"}) ==
        "it's the club's 'own' way");
  CHECK(joined({"we", "'", "ll", "see", "1", "/", "2", "..."}) == "we'll see 1/2...");
  CHECK(joined({}) == "");
  CHECK(joined({"."}) == ".");
}

TEST_CASE("unicode: lower case is Unicode's full mapping") {
  CHECK(lower("ABC xyz 09 @[`{") == "abc xyz 09 @[`{");
  CHECK(lower("\u00c9\u0141\u0416\u1e9e") == "\u00e9\u0142\u0436\u00df");
  CHECK(lower("\u0130") == "i\u0307");             // one character becomes two
  CHECK(lower("\u03a3") == "\u03c3");              // alone
  CHECK(lower("\u039f\u03a3") == "\u03bf\u03c2");  // the last letter of a word
  CHECK(lower("\u03a3\u039f") == "\u03c3\u03bf");
  CHECK(lower("\u039f\u03a3'S") == "\u03bf\u03c3's");  // a letter follows the apostrophe
  CHECK(lower("\u039f\u03a3\u2019") == "\u03bf\u03c2\u2019");
  CHECK(lower("\u2019A'\u0130\u2019'") == "\u2019a'i\u0307\u2019'");
  CHECK(lower("\U00010400") == "\U00010428");
}

TEST_CASE("unicode: text that is not UTF-8 is refused at its first bad byte") {
  for (const char* good : {"", "abc\n", "\u00e9\u20ac\U0001f600\U0010ffff"}) check_utf8(good, "f");
  for (const char* bad :
       {"\x80", "\xff", "\xc3", "\xc3(", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x9f\x98",
        "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"}) {
    CAPTURE(bad);
    const std::string message = error_of([&] { check_utf8(std::string("ab\n\u00e9") + bad, "f"); });
    CHECK(contains(message, "f: not UTF-8"));
    CHECK(contains(message, "at position 5 (line 2)"));
  }
}

}  // TEST_SUITE("wordlm")
