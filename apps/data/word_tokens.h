// Text as words: the tokenizer of Spellings 2019 (agglomerative attention) for WikiText-2, and the
// way back to text that reads well.
//
// A line is scanned from left to right; at each place the first of these that matches is a token:
//
//   1. number. With D a run of decimal digits, w optional white space, slash / or U+2044, tried
//      in this order:
//        D%   D.D%   D,D%   D.D   D,D   D space w D w slash w D   D w vulgar
//        D w sup+ w slash w sub+   D w slash w D   vulgar   ⅟ w D   sup+ w slash w sub+   D
//      vulgar: ¼½¾ and U+2150 … U+215E; sup: U+00B9, U+2070, U+2072 … U+2079; sub: U+2080 … U+2089
//   2. word: a run of characters that are neither ASCII digits, nor white space, nor one of
//        \ . , : ; { } ( ) [ ] ? ! ' " / # * | ↑ ~ +
//      and behind it, where they follow, ' and one or two of the letters s t v e d
//   3. punctuation: ... or one of those characters
//
// What is none of them, white space, is dropped. @ = - < > $ % are characters of words, so <unk>
// is one token. All texts here are well-formed UTF-8 (unicode.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace weft {

struct WordToken {
  std::string_view text;
  bool number;
};

class WordTokens {
 public:
  explicit WordTokens(std::string_view line) : rest_(line) {}  // which must outlive this
  std::optional<WordToken> next();

 private:
  std::string_view rest_;
};

// WikiText writes "12 @,@ 000" where "12,000" stood: white space, @, one character that does not
// end the line, @, white space become that character. Each place once, from left to right.
std::string without_split_marks(std::string_view text);

// Words as a line of text: punctuation stands at the word before it, opening brackets at the word
// after it, quotes open and close in turn, and 's, 't and their like stand at their word.
std::string detokenized(std::span<const std::string> words);

}  // namespace weft
