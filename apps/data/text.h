// Text as ids of characters, cut into training, validation and test parts, and into windows.
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
  std::string source;  // "builtin" or the file
  Vocabulary vocabulary = Vocabulary::text8();
  std::vector<CharacterId> ids;
  std::shared_ptr<const Grammar> grammar;  // that it was drawn from, where that is known
};

// `data` is "builtin" or a file. The vocabulary is one that Vocabulary::fitting() takes, or made.
Text load_text(const std::string& data, const std::string& vocabulary);
Text load_text(const std::string& data, const Vocabulary& vocabulary);

// What "auto" stands for: 60/30/10, as the paper shares text8, for this (10⁸ of its characters, or a
// file of this name with no others) and the built-in text, and 90/5/5 for any other. Other splits
// stay as they are.
std::string resolved_split(const std::string& split, const Text& text);

// "60/30/10": the shares of training, validation and test, in percent; throws unless each is
// positive and they sum to 100.
std::array<double, 3> parse_split(const std::string& text);

using Ids = std::span<const CharacterId>;

// The parts of a text, by position. They refer to the text, which must outlive them.
struct Parts {
  Ids train, validation, test;

  Ids named(const std::string& name) const;  // "train", "validation" or "test"
};

// Throws where a part has fewer than length + 1 characters.
Parts split_text(const Text& text, const std::array<double, 3>& shares, i64 length);

}  // namespace weft
