// Word pieces: what turns text into ids and ids into text, for models of words. Three kinds: over
// bytes, learnt from the text, for any text (byte_pieces.h); those of a paper, learnt from the text
// in lower case (paper_pieces.h); and models of SentencePiece that somebody has trained
// (sentence_pieces.h).
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
  struct Special {  // each an id below size()
    std::int32_t unknown, begin, end, pad;
  };

  virtual ~WordPieces() = default;
  virtual std::string name() const = 0;
  virtual i64 size() const = 0;
  virtual Special special() const = 0;
  // Whether text is any bytes; otherwise it is UTF-8.
  virtual bool any_bytes() const { return false; }
  // What stands before a text that begins with nothing.
  virtual PieceIds opening() const { return {special().begin}; }
  // The pieces of one line, or of any text with any_bytes(), without begin and end. Keeps what it
  // has found for a word, so one thread calls it at a time.
  virtual PieceIds encode(std::string_view line) const = 0;
  // A whole text: begin, pieces, end for each line of for_each_line(), where nothing else is said.
  virtual PieceIds stream(std::string_view text, const std::string& source) const;
  // Text that reads well: a new line for each end; nothing for begin and pad. The ids may begin or
  // stop inside a word. Throws where one is not in [0, size()).
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  // All of it in a string of UTF-8, for restore_pieces().
  virtual std::string save() const = 0;
};

// From what save() gave. Nothing in it is trusted; `source` begins the error.
std::shared_ptr<const WordPieces> restore_pieces(const std::string& saved,
                                                 const std::string& source);

// Calls f(line) for the lines of `text`, each without the white space at its ends (the CR of CRLF
// is some), and not for those of which nothing is left. An error of f gets `source` and the number
// of the line put before it. The text is well-formed UTF-8.
void for_each_line(std::string_view text, const std::string& source,
                   const std::function<void(std::string_view)>& f);

}  // namespace weft
