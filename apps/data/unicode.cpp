#include "apps/data/unicode.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include <unicase.h>
#include <unictype.h>
#include <unistr.h>

#include "runtime/error.h"

namespace weft {
namespace {

const std::uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 128; }

constexpr std::string_view typographic = "\u2019";  // apostrophe

// Unicode's rule for the final sigma ignores apostrophes, but libunistring 1.0 ends a word at an
// ASCII apostrophe (not at a typographic one). Lower-casing changes neither character, so they are
// exchanged for the call.
std::string with_typographic_apostrophes(std::string_view text) {
  std::string result;
  for (const char c : text) c == '\'' ? result += typographic : result += c;
  return result;
}

// The inverse: restores the ASCII apostrophes of `text`.
std::string with_apostrophes_of(std::string_view text, std::string_view mapped) {
  std::string result;
  std::size_t in_text = 0, copied = 0;
  for (std::size_t at = mapped.find(typographic); at != mapped.npos;
       at = mapped.find(typographic, copied)) {
    while (text[in_text] != '\'' && !text.substr(in_text).starts_with(typographic)) ++in_text;
    result += mapped.substr(copied, at - copied);
    const std::string_view apostrophe = text[in_text] == '\'' ? "'" : typographic;
    result += apostrophe;
    in_text += apostrophe.size();
    copied = at + typographic.size();
  }
  return result += mapped.substr(copied);
}

char lower_ascii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

void check_utf8(std::string_view text, const std::string& source) {
  const std::uint8_t* const bad = u8_check(bytes_of(text), text.size());
  if (bad == nullptr) return;
  const auto at = static_cast<std::size_t>(bad - bytes_of(text));
  fail(
      "{}: not UTF-8: byte 0x{:02x} at position {} (line {}) begins no character; convert the "
      "text, for example with iconv -t utf-8",
      source, *bad, at,
      std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1);
}

bool is_utf8(std::string_view text) { return u8_check(bytes_of(text), text.size()) == nullptr; }

std::string utf8(char32_t code_point) {
  std::uint8_t bytes[6];
  const int count = u8_uctomb(bytes, static_cast<ucs4_t>(code_point), sizeof bytes);
  return std::string(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

CodePoint code_point(std::string_view text, std::size_t at) {
  if (is_ascii(text[at])) return {static_cast<char32_t>(text[at]), 1};
  ucs4_t value = 0;
  const int bytes = u8_mbtouc_unsafe(&value, bytes_of(text) + at, text.size() - at);
  return {static_cast<char32_t>(value), static_cast<std::size_t>(bytes)};
}

CodePoint code_point_of_any(std::string_view text, std::size_t at) {
  ucs4_t value = 0;
  const int bytes = u8_mbtoucr(&value, bytes_of(text) + at, text.size() - at);
  if (bytes <= 0) return {0xfffd, 1};
  return {static_cast<char32_t>(value), static_cast<std::size_t>(bytes)};
}

bool is_space(char32_t c) {
  if (c < 128) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_digit(char32_t c) {
  if (c < 128) return c >= '0' && c <= '9';
  return uc_is_general_category(c, UC_DECIMAL_DIGIT_NUMBER);
}

bool is_letter(char32_t c) {
  if (c < 128) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return uc_is_general_category(c, UC_LETTER);
}

bool is_number(char32_t c) {
  if (c < 128) return c >= '0' && c <= '9';
  return uc_is_general_category(c, UC_NUMBER);
}

std::string lower(std::string_view text) {
  std::string result(text);
  if (std::all_of(text.begin(), text.end(), is_ascii)) {
    std::transform(text.begin(), text.end(), result.begin(), lower_ascii);
    return result;
  }
  const std::string typographic_text = with_typographic_apostrophes(text);
  std::size_t size = 0;
  const std::unique_ptr<std::uint8_t, void (*)(void*)> mapped(
      u8_tolower(bytes_of(typographic_text), typographic_text.size(), nullptr, nullptr, nullptr,
                 &size),
      std::free);
  require(mapped != nullptr, "lower case: out of memory for a text of {} bytes", text.size());
  return with_apostrophes_of(text, {reinterpret_cast<const char*>(mapped.get()), size});
}

}  // namespace weft
