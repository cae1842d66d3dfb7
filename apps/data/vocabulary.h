// The characters that a model of characters knows, each with an id:
//
//     text8       28 ids, a–z = 1 … 26, space = 27, and 0 unused (M. Mahoney's text8, as Spellings
//                 2019 numbers it)
//     bytes       each of the 256 byte values is its own id
//     characters  the code points that occur in a text in UTF-8, in their order
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
  // What occurs in `text`. Throws where that is not UTF-8, or has more than 65,536 of them.
  static Vocabulary of(std::string_view text, const std::string& source);
  // "auto": text8 where its 27 characters suffice, otherwise characters, or bytes where `text` is
  // not UTF-8; or one of the three by its name, which throws where there is no such.
  static Vocabulary fitting(const std::string& name, std::string_view text,
                            const std::string& source);
  // From name() and characters() of another, which are not trusted; `source` begins the error.
  static Vocabulary restore(const std::string& name, const std::string& characters,
                            const std::string& source);

  const std::string& name() const { return name_; }
  const std::string& characters() const { return characters_; }  // UTF-8; empty for the other two
  i64 size() const;
  i64 first() const { return name_ == "text8" ? 1 : 0; }  // id that texts have
  // What is read before a text that begins with nothing: a space, where there is one.
  i64 opening() const;

  // Throws, naming `source` and the position in bytes, at a character outside of the vocabulary.
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
  std::vector<char32_t> code_points_;    // sorted
  std::vector<std::size_t> begins_ = {};  // of each in characters_, and its end
};

}  // namespace weft
