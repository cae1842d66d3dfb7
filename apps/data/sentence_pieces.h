// SentencePiece models (T. Kudo and J. Richardson, 2018, arXiv:1808.06226), for word pieces trained
// with another tool: spm_train --input=train.txt --model_prefix=own --vocab_size=8000 writes
// own.model.
//
// If a model lacks an id for begin, end or pad (by default SentencePiece has no pad), the missing
// ids are appended after its pieces, in this order.
#pragma once

#include <memory>
#include <string>

#include "apps/data/word_pieces.h"

namespace weft {

// A longer line is an error: the library needs about a hundred times its memory.
constexpr std::size_t longest_sentence = 1 << 20;  // bytes
// Prefix of save()'s text; the model's name, \n and the model's bytes in hexadecimal follow.
constexpr std::string_view saved_sentence_pieces = "sentencepiece ";

// Throws if the file is not a model or the model has no piece for unknown text.
std::shared_ptr<const WordPieces> load_sentence_pieces(const std::string& file);
std::shared_ptr<const WordPieces> restore_sentence_pieces(const std::string& saved,
                                                          const std::string& source);

}  // namespace weft
