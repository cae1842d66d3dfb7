// Cache of learnt word pieces beside the text, in TRAINING_FILE.pieces:
//
//   weft kept pieces 1
//   learnt from XXXXXXXXXXXXXXXX      XXH3, 64 bits, of the bytes of the training text
//   contents XXXXXXXXXXXXXXXX         XXH3, 64 bits, of everything after this line
//   …                                 PaperPieces::save() (paper_pieces.h)
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/data/paper_pieces.h"

namespace weft {

// The pieces of the training text `text` (with its split marks) of `file`: read from the cache if
// it is intact and was learnt from the same bytes; otherwise learnt and, with `keep`, written to
// the cache. A bad cache file or a failed write is not an error: it adds a line to `warnings`.
std::shared_ptr<const PaperPieces> kept_or_learnt(std::string_view text, const std::string& file,
                                                  bool keep, std::vector<std::string>& warnings);

}  // namespace weft
