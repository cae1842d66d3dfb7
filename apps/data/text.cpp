#include "apps/data/text.h"

#include <charconv>
#include <cmath>
#include <filesystem>

#include "nn/file.h"
#include "runtime/names.h"

namespace weft {
namespace {

constexpr std::size_t builtin_text_characters = 1'000'000;

constexpr std::size_t text8_characters = 100'000'000;

// Reads the characters of `data`; sets the source and the grammar of `text`.
std::string read_text(const std::string& data, Text& text) {
  text.source = data;
  if (data == "builtin") {
    text.grammar = std::make_shared<const Grammar>(sentence_grammar());
    return text.grammar->text(1, builtin_text_characters);
  }
  std::string characters = read_file(data);
  require(!characters.empty(), "{}: the file is empty", data);
  return characters;
}

}  // namespace

Text load_text(const std::string& data, const std::string& vocabulary) {
  Text text;
  const std::string characters = read_text(data, text);
  text.vocabulary = Vocabulary::fitting(vocabulary, characters, data);
  text.ids = text.vocabulary.encode(characters, data);
  return text;
}

Text load_text(const std::string& data, const Vocabulary& vocabulary) {
  Text text;
  const std::string characters = read_text(data, text);
  text.vocabulary = vocabulary;
  text.ids = vocabulary.encode(characters, data);
  return text;
}

std::string resolved_split(const std::string& split, const Text& text) {
  if (split != "auto") return split;
  const bool named = std::filesystem::path(text.source).filename() == "text8";
  const bool is_text8 = text.vocabulary.name() == "text8" &&
                        (named || text.ids.size() == text8_characters);
  return text.grammar || is_text8 ? "60/30/10" : "90/5/5";
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
          "sum, as in 90/5/5; got '{}'", text);
  return shares;
}

Ids Parts::named(const std::string& name) const {
  if (name == "train") return train;
  if (name == "validation") return validation;
  require(name == "test", "there is no part '{}'; there are {}", name,
          known_names(name, {"train", "validation", "test"}));
  return test;
}

Parts split_text(const Text& text, const std::array<double, 3>& shares, i64 length) {
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
