#include "apps/data/word_tokens.h"

#include <algorithm>
#include <array>

#include "apps/data/unicode.h"

namespace weft {
namespace {

constexpr std::size_t none = std::string_view::npos;
constexpr char32_t up_arrow = 0x2191, one_over = 0x215f;
constexpr std::string_view ascii_punctuation = "\\.,:;{}()[]?!'\"/#*|~+";

constexpr auto ascii_of_words = [] {
  std::array<bool, 128> table{};
  for (int c = 0; c < 128; ++c) {
    const bool space = (c >= 9 && c <= 13) || (c >= 28 && c <= 32), digit = c >= '0' && c <= '9';
    table[static_cast<std::size_t>(c)] =
        !space && !digit && ascii_punctuation.find(static_cast<char>(c)) == none;
  }
  return table;
}();

bool is_of_words(char32_t c) { return c < 128 ? ascii_of_words[c] : c != up_arrow && !is_space(c); }

bool is_slash(char32_t c) { return c == '/' || c == 0x2044; }
bool is_vulgar(char32_t c) {
  return c == 0xbc || c == 0xbd || c == 0xbe || (c >= 0x2150 && c <= 0x215e);
}
bool is_superscript(char32_t c) { return c == 0xb9 || c == 0x2070 || (c >= 0x2072 && c <= 0x2079); }
bool is_subscript(char32_t c) { return c >= 0x2080 && c <= 0x2089; }

// The end of the longest run of such characters that begins at `at`; `at` if there is none.
template <bool is(char32_t)>
std::size_t after_run(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const CodePoint c = code_point(text, at);
    if (!is(c.value)) break;
    at += c.bytes;
  }
  return at;
}

// The same for at least one character; `none` if there is none.
template <bool is(char32_t)>
std::size_t after_some(std::string_view text, std::size_t at) {
  const std::size_t end = after_run<is>(text, at);
  return end > at ? end : none;
}

bool stands_at(std::string_view text, std::size_t at, bool is(char32_t)) {
  return at < text.size() && is(code_point(text, at).value);
}

// Matches above+ w slash w below+; returns its end.
template <bool above(char32_t), bool below(char32_t)>
std::size_t after_fraction(std::string_view text, std::size_t at) {
  const std::size_t numerator = after_some<above>(text, at);
  if (numerator == none) return none;
  const std::size_t slash = after_run<is_space>(text, numerator);
  if (!stands_at(text, slash, is_slash)) return none;
  const std::size_t behind = slash + code_point(text, slash).bytes;
  return after_some<below>(text, after_run<is_space>(text, behind));
}

// The end of the number whose leading digits end at `digits`.
std::size_t after_digits(std::string_view text, std::size_t digits) {
  const char next = digits < text.size() ? text[digits] : '\0';
  if (next == '%') return digits + 1;
  if (next == '.' || next == ',') {
    const std::size_t decimals = after_some<is_digit>(text, digits + 1);
    if (decimals != none) return decimals + (text.substr(decimals).starts_with('%') ? 1 : 0);
  }
  const std::size_t behind = after_run<is_space>(text, digits);
  // The run of digits is maximal, so further digits can only follow after a space.
  if (const auto end = after_fraction<is_digit, is_digit>(text, behind); end != none) return end;
  if (stands_at(text, behind, is_vulgar)) return behind + code_point(text, behind).bytes;
  if (const auto end = after_fraction<is_superscript, is_subscript>(text, behind); end != none) {
    return end;
  }
  const std::size_t fraction = after_fraction<is_digit, is_digit>(text, 0);
  return fraction != none ? fraction : digits;
}

// The end of the number at the beginning of `text`; `none` if there is no number.
std::size_t after_number(std::string_view text) {
  if (const auto digits = after_some<is_digit>(text, 0); digits != none) {
    return after_digits(text, digits);
  }
  const CodePoint first = code_point(text, 0);
  if (is_vulgar(first.value)) return first.bytes;
  if (first.value == one_over) {
    return after_some<is_digit>(text, after_run<is_space>(text, first.bytes));
  }
  return after_fraction<is_superscript, is_subscript>(text, 0);
}

// The end of the word at the beginning of `text`; `none` if there is no word.
std::size_t after_word(std::string_view text) {
  const std::size_t end = after_some<is_of_words>(text, 0);
  if (end == none || end == text.size() || text[end] != '\'') return end;
  std::size_t letters = end + 1;
  while (letters < std::min(text.size(), end + 3) &&
         std::string_view("stved").find(text[letters]) != none) {
    ++letters;
  }
  return letters > end + 1 ? letters : end;
}

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

std::optional<WordToken> WordTokens::next() {
  rest_.remove_prefix(after_run<is_space>(rest_, 0));
  if (rest_.empty()) return std::nullopt;
  std::size_t end = after_number(rest_);
  const bool number = end != none;
  if (!number) end = after_word(rest_);
  if (end == none) end = rest_.starts_with("...") ? 3 : code_point(rest_, 0).bytes;
  const WordToken token{rest_.substr(0, end), number};
  rest_.remove_prefix(end);
  return token;
}

std::string without_split_marks(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  std::size_t copied = 0;  // bytes of `text` copied so far
  for (std::size_t at = text.find('@'); at != none; at = text.find('@', at + 1)) {
    std::size_t before = at;  // start of the character before it, if after the last mark
    while (before > copied && (before == at || is_continuation(text[before]))) --before;
    const bool spaced = before < at && is_space(code_point(text, before).value);
    if (!spaced || at + 1 == text.size()) continue;
    const CodePoint middle = code_point(text, at + 1);
    const std::size_t second = at + 1 + middle.bytes;
    if (middle.value == '\n' || second + 1 >= text.size() || text[second] != '@') continue;
    const CodePoint behind = code_point(text, second + 1);
    if (!is_space(behind.value)) continue;
    result += text.substr(copied, before - copied);
    result += text.substr(at + 1, middle.bytes);
    copied = second + 1 + behind.bytes;
    at = copied - 1;
  }
  result += text.substr(copied);
  return result;
}

std::string detokenized(std::span<const std::string> words) {
  std::string text;
  bool attached = true;  // the next word follows without a space
  bool quoted = false, singly_quoted = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    bool before = false, after = false;  // whether the word attaches to its neighbours
    if (word == "\"") {
      (quoted ? before : after) = true;
      quoted = !quoted;
    } else if (word == "'") {
      const bool contracted =
          i + 1 < words.size() && is_one_of(words[i + 1], {"s", "t", "d", "m", "ve", "re", "ll"});
      before = contracted || singly_quoted;
      after = contracted || !singly_quoted;
      if (!contracted) singly_quoted = !singly_quoted;
    } else {
      const bool both = is_one_of(word, {"/", "\\"});
      before = both || is_one_of(word, {".", ",", ":", ";", "?", "!", ")", "]", "}", "..."});
      after = both || is_one_of(word, {"(", "[", "{", "#"});
    }
    if (!attached && !before) text += ' ';
    text += word;
    attached = after;
  }
  return text;
}

}  // namespace weft
