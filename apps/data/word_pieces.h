// Word pieces: the tokenizers of word-level models. Three kinds: byte-level pieces learnt from any
// text (byte_pieces.h), those of a paper, learnt from lower-case text (paper_pieces.h), and trained
// SentencePiece models (sentence_pieces.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/types.h"

namespace weft {

using PieceIds = std::vector<std::int32_t>;

class WordPieces {
 public:
  struct Special {  // special ids, each below size()
    std::int32_t unknown, begin, end, pad;
  };

  virtual ~WordPieces() = default;
  virtual std::string name() const = 0;
  virtual i64 size() const = 0;
  virtual Special special() const = 0;
  // Whether text may be arbitrary bytes; otherwise it must be UTF-8.
  virtual bool any_bytes() const { return false; }
  // The ids to read before generating text without a prompt.
  virtual PieceIds opening() const { return {special().begin}; }
  // The pieces of one line (of any text if any_bytes()), without begin and end. Caches the pieces
  // of words: not thread-safe.
  virtual PieceIds encode(std::string_view line) const = 0;
  // Encodes a whole text. By default: begin, pieces, end for each line of for_each_line().
  virtual PieceIds stream(std::string_view text, const std::string& source) const;
  // Decodes ids to text: a line end for each end, nothing for begin and pad. The ids may begin or
  // stop inside a word. Throws for an id outside [0, size()).
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  // The pieces as UTF-8 text, for restore_pieces().
  virtual std::string save() const = 0;
};

// Restores pieces from save(). The text is not trusted; errors begin with `source`.
std::shared_ptr<const WordPieces> restore_pieces(const std::string& saved,
                                                 const std::string& source);

// Calls f(line) for the lines of `text`, stripped of white space at both ends (including the CR of
// CRLF); skips empty ones. Errors from f are prefixed with `source` and the line number. Requires
// well-formed UTF-8.
void for_each_line(std::string_view text, const std::string& source,
                   const std::function<void(std::string_view)>& f);

}  // namespace weft
