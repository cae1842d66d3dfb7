// Text as character ids, split into training, validation and test parts.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/data/corpus.h"
#include "apps/data/vocabulary.h"
#include "apps/data/windows.h"

namespace weft {

struct Text {
  std::string source;  // "builtin" or a file name
  Vocabulary vocabulary = Vocabulary::text8();
  std::vector<CharacterId> ids;
  std::shared_ptr<const Grammar> grammar;  // of the built-in text; null for a file
};

// `data` is "builtin" or a file. `vocabulary` is a name that Vocabulary::fitting() accepts, or a
// vocabulary.
Text load_text(const std::string& data, const std::string& vocabulary);
Text load_text(const std::string& data, const Vocabulary& vocabulary);

// Resolves "auto": 60/30/10, the paper's split of text8, for text8 (10⁸ of its characters, or a
// file of this name with only its characters) and for the built-in text; 90/5/5 for other texts.
// Other splits are returned unchanged.
std::string resolved_split(const std::string& split, const Text& text);

// Parses "60/30/10", the percentages of training, validation and test. Throws unless each is
// positive and they sum to 100.
std::array<double, 3> parse_split(const std::string& text);

using Ids = std::span<const CharacterId>;

// The parts of a text, consecutive. They refer to the text, which must outlive them.
struct Parts {
  Ids train, validation, test;

  Ids named(const std::string& name) const;  // "train", "validation" or "test"
};

// Throws if a part has fewer than length + 1 characters.
Parts split_text(const Text& text, const std::array<double, 3>& shares, i64 length);

}  // namespace weft
