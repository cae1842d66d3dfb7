// Text as character ids, cut into training, validation and test parts, and into windows.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/common/corpus.h"
#include "apps/common/windows.h"

namespace weft {

// text8: 28 ids, a–z = 1 … 26, space = 27, and 0 unused (M. Mahoney's text8, as Spellings 2019
// numbers it). bytes: each of the 256 byte values is its own id.
enum class Vocabulary { text8, bytes };

const char* name_of(Vocabulary vocabulary);
Vocabulary vocabulary_named(const std::string& name);  // "text8" or "bytes"
std::int64_t size_of(Vocabulary vocabulary);
// The ids of `text`; throws, naming `source` and the position, at a character outside of it.
std::vector<std::uint8_t> encode(Vocabulary vocabulary, const std::string& text,
                                 const std::string& source);
char character_of(Vocabulary vocabulary, std::int64_t id);

struct Text {
  std::string source;  // "builtin" or the file
  Vocabulary vocabulary = Vocabulary::text8;
  std::vector<std::uint8_t> ids;
  std::shared_ptr<const Grammar> grammar;  // that it was drawn from, where that is known
};

// `data` is "builtin" or a file. `vocabulary` is "text8", "bytes", or "auto": text8 where its 27
// characters suffice.
Text load_text(const std::string& data, const std::string& vocabulary);

// "60/30/10": the shares of training, validation and test, in percent; throws unless each is
// positive and they sum to 100.
std::array<double, 3> parse_split(const std::string& text);

using Ids = std::span<const std::uint8_t>;

// The parts of a text, by position. They refer to the text, which must outlive them.
struct Parts {
  Ids train, validation, test;

  Ids named(const std::string& name) const;  // "train", "validation" or "test"
};

// Throws where a part has fewer than length + 1 characters.
Parts split_text(const Text& text, const std::array<double, 3>& shares, std::int64_t length);

}  // namespace weft
