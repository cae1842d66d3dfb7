// Word pieces learnt once and kept beside the text, in TRAINING_FILE.pieces:
//
//   weft kept pieces 1
//   learnt from XXXXXXXXXXXXXXXX      XXH3, 64 bits, of the bytes of the training text
//   contents XXXXXXXXXXXXXXXX         XXH3, 64 bits, of all that follows this line
//   …                                 what PaperPieces::save() gave (paper_pieces.h)
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/data/paper_pieces.h"

namespace weft {

// The pieces of the training text `text` (with its split marks) of `file`: those kept, where they
// were learnt from the same bytes and are whole, else learnt, and then, with `keep`, kept. What is
// wrong with a kept file, or with writing one, is no error: `warnings` gets a line.
std::shared_ptr<const PaperPieces> kept_or_learnt(std::string_view text, const std::string& file,
                                                  bool keep, std::vector<std::string>& warnings);

}  // namespace weft
