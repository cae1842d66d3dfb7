#include "apps/command_line/printable.h"

#include <unictype.h>
#include <unistr.h>

#include <fmt/core.h>

namespace weft {
namespace {

constexpr int cut_short = -2;  // returned by u8_mbtoucr for an incomplete character

void escape(std::string_view bytes, std::string& to) {
  for (const char byte : bytes) to += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
}

}  // namespace

std::string PrintableText::add(std::string_view more) {
  held_ += more;
  std::string shown;
  std::size_t at = 0;
  while (at < held_.size()) {
    const auto* const begin = reinterpret_cast<const std::uint8_t*>(held_.data()) + at;
    ucs4_t character = 0;
    const int length = u8_mbtoucr(&character, begin, held_.size() - at);
    if (length == cut_short) break;
    const std::string_view bytes(held_.data() + at, static_cast<std::size_t>(std::max(length, 1)));
    const bool kept = character == '\n' || character == '\t' ||
                      (uc_is_print(character) && !uc_is_property_bidi_control(character));
    if (length > 0 && kept) {
      shown += bytes;
    } else {
      escape(bytes, shown);
    }
    at += bytes.size();
  }
  held_.erase(0, at);
  return shown;
}

std::string PrintableText::rest() {
  std::string shown;
  escape(held_, shown);
  held_.clear();
  return shown;
}

std::string printable(std::string_view text) {
  PrintableText whole;
  std::string shown = whole.add(text);
  return shown + whole.rest();
}

}  // namespace weft
