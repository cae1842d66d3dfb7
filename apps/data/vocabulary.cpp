#include "apps/data/vocabulary.h"

#include <algorithm>
#include <limits>

#include "apps/data/unicode.h"
#include "runtime/error.h"
#include "runtime/names.h"

namespace weft {
namespace {

constexpr std::size_t most_characters = std::size_t{std::numeric_limits<CharacterId>::max()} + 1;
constexpr CharacterId text8_space = 27;

// The text8 id of a character; 0 if it has none.
constexpr CharacterId text8_id(char character) {
  if (character == ' ') return text8_space;
  if (character >= 'a' && character <= 'z') return static_cast<CharacterId>(character - 'a' + 1);
  return 0;
}

std::string shown(char character) {
  const auto code = static_cast<unsigned char>(character);
  return code > ' ' && code < 127 ? fmt::format("'{}'", character) : fmt::format("0x{:02x}", code);
}

std::string shown(std::string_view character, char32_t value) {
  const bool control = value <= ' ' || (value >= 0x7f && value < 0xa0) || is_space(value);
  const std::string code = fmt::format("U+{:04X}", static_cast<std::uint32_t>(value));
  return control ? code : fmt::format("'{}' ({})", character, code);
}

// Calls f(code point, its bytes, its offset) for each character.
template <class F>
void each_code_point(std::string_view text, const F& f) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    f(c.value, text.substr(at, c.bytes), at);
    at += c.bytes;
  }
}

}  // namespace

Vocabulary Vocabulary::of(std::string_view text, const std::string& source) {
  check_utf8(text, source);
  constexpr std::size_t numbers = 0x110000;
  std::vector<bool> occurs(numbers, false);
  each_code_point(text, [&](char32_t value, std::string_view, std::size_t) {
    occurs[value] = true;
  });
  Vocabulary made("characters");
  for (std::size_t value = 0; value < numbers; ++value) {
    if (!occurs[value]) continue;
    made.code_points_.push_back(static_cast<char32_t>(value));
    made.begins_.push_back(made.characters_.size());
    made.characters_ += utf8(static_cast<char32_t>(value));
  }
  made.begins_.push_back(made.characters_.size());
  require(made.code_points_.size() <= most_characters,
          "{}: has {} different characters, and a vocabulary holds {}; use --vocabulary bytes",
          source, made.code_points_.size(), most_characters);
  return made;
}

Vocabulary Vocabulary::fitting(const std::string& name, std::string_view text,
                               const std::string& source) {
  if (name == "auto") {
    if (std::all_of(text.begin(), text.end(), text8_id)) return text8();
    return is_utf8(text) ? of(text, source) : bytes();
  }
  if (name == "characters") return of(text, source);
  return restore(name, "", "vocabulary");
}

Vocabulary Vocabulary::restore(const std::string& name, const std::string& characters,
                               const std::string& source) {
  if (name == "characters") {
    Vocabulary made = of(characters, source);
    require(!characters.empty() && made.characters_ == characters,
            "{}: damaged vocabulary: wanted characters in their order, each once", source);
    return made;
  }
  require(name == "text8" || name == "bytes", "{}: there is no vocabulary '{}'; there are {}",
          source, name, known_names(name, {"text8", "bytes", "characters"}));
  return Vocabulary(name);
}

i64 Vocabulary::size() const {
  if (name_ == "text8") return 28;
  return name_ == "bytes" ? 256 : static_cast<i64>(code_points_.size());
}

i64 Vocabulary::opening() const {
  if (name_ == "text8") return text8_space;
  if (name_ == "bytes") return ' ';
  const auto space = std::lower_bound(code_points_.begin(), code_points_.end(), U' ');
  const bool there = space != code_points_.end() && *space == U' ';
  return there ? space - code_points_.begin() : 0;
}

std::vector<CharacterId> Vocabulary::encode(std::string_view text,
                                            const std::string& source) const {
  std::vector<CharacterId> ids;
  if (name_ == "characters") {
    check_utf8(text, source);
    ids.reserve(text.size());
    each_code_point(text, [&](char32_t value, std::string_view character, std::size_t at) {
      const auto found = std::lower_bound(code_points_.begin(), code_points_.end(), value);
      require(found != code_points_.end() && *found == value,
              "{}: the character {} at position {} is none of the {} of the model's training text; "
              "a model trained with --vocabulary bytes accepts any text",
              source, shown(character, value), at, size());
      ids.push_back(static_cast<CharacterId>(found - code_points_.begin()));
    });
    return ids;
  }
  ids.resize(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    ids[i] = name_ == "text8" ? text8_id(text[i]) : static_cast<unsigned char>(text[i]);
    require(name_ == "bytes" || ids[i] != 0,
            "{}: the character {} at position {} is not in text8, which has a to z and space; a "
            "model trained with --vocabulary bytes accepts any text",
            source, shown(text[i]), i);
  }
  return ids;
}

std::string Vocabulary::character(i64 id) const {
  if (name_ == "characters") {
    const auto at = static_cast<std::size_t>(id);
    return characters_.substr(begins_[at], begins_[at + 1] - begins_[at]);
  }
  if (name_ == "bytes") return std::string(1, static_cast<char>(id));
  if (id == 0) return "_";  // not in any text, but an untrained model can generate it
  return std::string(1, id == text8_space ? ' ' : static_cast<char>('a' + id - 1));
}

}  // namespace weft
