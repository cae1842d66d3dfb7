#include "apps/common/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "nn/file.h"
#include "ops/attention/mechanism.h"

namespace weft {
namespace {

constexpr std::size_t builtin_characters = 1'000'000;

// The text8 id of a character; 0 where there is none.
constexpr std::uint8_t text8_id(char character) {
  if (character == ' ') return 27;
  if (character >= 'a' && character <= 'z') return static_cast<std::uint8_t>(character - 'a' + 1);
  return 0;
}

std::string shown(char character) {
  const auto code = static_cast<unsigned char>(character);
  return code > ' ' && code < 127 ? fmt::format("'{}'", character) : fmt::format("0x{:02x}", code);
}

}  // namespace

const char* name_of(Vocabulary vocabulary) {
  return vocabulary == Vocabulary::text8 ? "text8" : "bytes";
}

Vocabulary vocabulary_named(const std::string& name) {
  if (name == "text8") return Vocabulary::text8;
  require(name == "bytes", "vocabulary: there is no '{}'; there are {}", name,
          known_names(name, {"text8", "bytes"}));
  return Vocabulary::bytes;
}

std::int64_t size_of(Vocabulary vocabulary) { return vocabulary == Vocabulary::text8 ? 28 : 256; }

std::vector<std::uint8_t> encode(Vocabulary vocabulary, const std::string& text,
                                 const std::string& source) {
  std::vector<std::uint8_t> ids(text.begin(), text.end());
  if (vocabulary == Vocabulary::bytes) return ids;
  for (std::size_t i = 0; i < text.size(); ++i) {
    ids[i] = text8_id(text[i]);
    require(ids[i] != 0,
            "{}: the character {} at position {} is not in text8, which has a to z "
            "and space; a model trained with --vocabulary bytes takes any text",
            source, shown(text[i]), i);
  }
  return ids;
}

char character_of(Vocabulary vocabulary, std::int64_t id) {
  if (vocabulary == Vocabulary::bytes) return static_cast<char>(id);
  if (id == 0) return '_';  // never in a text, but an untrained model may say it
  return id == 27 ? ' ' : static_cast<char>('a' + id - 1);
}

Text load_text(const std::string& data, const std::string& vocabulary) {
  Text text;
  text.source = data;
  std::string characters;
  if (data == "builtin") {
    text.grammar = std::make_shared<const Grammar>(sentence_grammar());
    characters = text.grammar->text(1, builtin_characters);
  } else {
    characters = read_file(data);
    require(!characters.empty(), "{}: the file is empty", data);
  }
  if (vocabulary == "auto") {
    const bool fits = std::all_of(characters.begin(), characters.end(), text8_id);
    text.vocabulary = fits ? Vocabulary::text8 : Vocabulary::bytes;
  } else {
    text.vocabulary = vocabulary_named(vocabulary);
  }
  text.ids = encode(text.vocabulary, characters, data);
  return text;
}

std::array<double, 3> parse_split(const std::string& text) {
  std::array<double, 3> shares{};
  const char* at = text.data();
  const char* const end = at + text.size();
  bool good = true;
  for (std::size_t part = 0; part < 3; ++part) {
    const auto [next, status] = std::from_chars(at, end, shares[part]);
    good = good && status == std::errc{} && shares[part] > 0;
    at = next;
    if (part < 2) good = good && at != end && *at++ == '/';
  }
  good = good && at == end && std::abs(shares[0] + shares[1] + shares[2] - 100) < 1e-9;
  require(good, "--split: wanted the shares of training, validation and test, positive and 100 in "
          "sum, as in 60/30/10; got '{}'", text);
  return shares;
}

Ids Parts::named(const std::string& name) const {
  if (name == "train") return train;
  if (name == "validation") return validation;
  require(name == "test", "there is no part '{}'; there are {}", name,
          known_names(name, {"train", "validation", "test"}));
  return test;
}

Parts split_text(const Text& text, const std::array<double, 3>& shares, std::int64_t length) {
  const Ids ids(text.ids);
  const auto at = [&](double percent) {
    return static_cast<std::size_t>(static_cast<double>(ids.size()) * percent / 100);
  };
  const std::size_t first = at(shares[0]), second = at(shares[0] + shares[1]);
  const Parts parts{ids.first(first), ids.subspan(first, second - first), ids.subspan(second)};
  for (const char* name : {"train", "validation", "test"}) {
    const std::size_t size = parts.named(name).size();
    require(size > static_cast<std::size_t>(length), "{}: too short: its {} part has {} "
            "characters, a window takes {}; give more text, another --split or a smaller --length",
            text.source, name, size, length + 1);
  }
  return parts;
}

}  // namespace weft
