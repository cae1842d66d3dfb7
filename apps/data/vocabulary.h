// The characters of a character-level model, each with an id:
//
//     text8       28 ids, a–z = 1 … 26, space = 27, and 0 unused (M. Mahoney's text8, as Spellings
//                 2019 numbers it)
//     bytes       each of the 256 byte values is its own id
//     characters  the code points that occur in a UTF-8 text, in ascending order
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/types.h"

namespace weft {

using CharacterId = std::uint16_t;

class Vocabulary {
 public:
  static Vocabulary text8() { return Vocabulary("text8"); }
  static Vocabulary bytes() { return Vocabulary("bytes"); }
  // The characters of `text`. Throws if it is not UTF-8 or has more than 65,536 of them.
  static Vocabulary of(std::string_view text, const std::string& source);
  // "auto": text8 if its 27 characters suffice, otherwise characters, or bytes if `text` is not
  // UTF-8. Otherwise the vocabulary of this name; throws for an unknown one.
  static Vocabulary fitting(const std::string& name, std::string_view text,
                            const std::string& source);
  // Restores a vocabulary from its name() and characters(), which are not trusted. Errors begin
  // with `source`.
  static Vocabulary restore(const std::string& name, const std::string& characters,
                            const std::string& source);

  const std::string& name() const { return name_; }
  const std::string& characters() const { return characters_; }  // UTF-8; empty for text8 and bytes
  i64 size() const;
  i64 first() const { return name_ == "text8" ? 1 : 0; }  // the lowest id in texts
  // The id to read before generating text without a prompt: the space, if the vocabulary has one.
  i64 opening() const;

  // Throws, naming `source` and the byte position, for a character outside the vocabulary.
  std::vector<CharacterId> encode(std::string_view text, const std::string& source) const;
  std::string character(i64 id) const;
  template <class Ids>
  std::string decode(const Ids& ids) const {
    std::string text;
    for (const auto id : ids) text += character(id);
    return text;
  }

 private:
  explicit Vocabulary(std::string name) : name_(std::move(name)) {}

  std::string name_, characters_;
  std::vector<char32_t> code_points_;     // ascending
  std::vector<std::size_t> begins_ = {};  // offset of each in characters_, and the total size
};

}  // namespace weft
