// The word tokenizer of Spellings 2019 (agglomerative attention) for WikiText-2, and its
// detokenizer.
//
// A line is scanned from left to right. At each position the first of these patterns that matches
// is a token:
//
//   1. number. With D a run of decimal digits, w optional white space, slash / or U+2044, tried
//      in this order:
//        D%   D.D%   D,D%   D.D   D,D   D space w D w slash w D   D w vulgar
//        D w sup+ w slash w sub+   D w slash w D   vulgar   ⅟ w D   sup+ w slash w sub+   D
//      vulgar: ¼½¾ and U+2150 … U+215E; sup: U+00B9, U+2070, U+2072 … U+2079; sub: U+2080 … U+2089
//   2. word: a run of characters that are neither ASCII digits, nor white space, nor one of
//        \ . , : ; { } ( ) [ ] ? ! ' " / # * | ↑ ~ +
//      followed, optionally, by ' and one or two of the letters s t v e d
//   3. punctuation: ... or one of those characters
//
// White space, which matches none, is dropped. @ = - < > $ % are word characters, so <unk> is one
// token. All texts must be well-formed UTF-8 (unicode.h).
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
  explicit WordTokens(std::string_view line) : rest_(line) {}  // `line` must outlive this object
  std::optional<WordToken> next();

 private:
  std::string_view rest_;
};

// WikiText writes "12 @,@ 000" for "12,000". Replaces white space, @, a character other than a line
// end, @, white space by that character: one pass, from left to right.
std::string without_split_marks(std::string_view text);

// Joins words to a line of text: punctuation attaches to the word before it, opening brackets to
// the word after it, quotes alternate between opening and closing, and 's, 't and the like attach
// to their word.
std::string detokenized(std::span<const std::string> words);

}  // namespace weft
