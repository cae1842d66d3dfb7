// Models of SentencePiece (T. Kudo and J. Richardson, 2018, arXiv:1808.06226), the common way to
// word pieces for text of one's own: train one with spm_train --input=train.txt --model_prefix=own
// --vocab_size=8000, and give its own.model.
//
// A model that lacks one of the ids for begin, end and pad (SentencePiece's own default has no
// pad) gets it behind its pieces, in this order.
#pragma once

#include <memory>
#include <string>

#include "apps/data/word_pieces.h"

namespace weft {

// A longer line is an error: the library takes some hundred times its memory at once.
constexpr std::size_t longest_sentence = 1 << 20;  // bytes
// What save() begins with; the model's name and \n follow, then the model's bytes in hexadecimal.
constexpr std::string_view saved_sentence_pieces = "sentencepiece ";

// Throws where the file is no model, or holds none of an unknown piece.
std::shared_ptr<const WordPieces> load_sentence_pieces(const std::string& file);
std::shared_ptr<const WordPieces> restore_sentence_pieces(const std::string& saved,
                                                          const std::string& source);

}  // namespace weft
