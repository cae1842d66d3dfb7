// Text as word pieces, in three parts, and the chunks that word-level models read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/data/text.h"
#include "apps/data/word_pieces.h"

namespace weft {

struct WordCounts {
  i64 lines = 0;   // lines that are not blank
  i64 words = 0;   // runs of characters that are not white space, plus every line end, in the
                   // file as it is: the count that defines WikiText's perplexity
  i64 characters = 0;  // of the file as it is, line ends included; a byte that is no UTF-8 is one
  i64 tokens = 0;  // ids in the stream
};

struct WordCorpus {
  std::shared_ptr<const WordPieces> pieces;
  PieceIds train, validation, test;  // WordPieces::stream()
  WordCounts train_counts, validation_counts, test_counts;
  std::vector<std::string> warnings;  // problems with the cache of pieces, for the user
};

// Throws, with the known kinds, if `pieces` is not one of them.
void check_pieces(const std::string& pieces);

// `data` is "builtin" (sentences of corpus.h), a folder with wiki.{train,valid,test}.tokens or
// {train,valid,test}.txt, or a file, whose lines are split 90/5/5. `pieces` is "bpe" or
// "bpe:merges=N" (byte_pieces.h, learnt from the training part), "paper" (learnt from it too and,
// with `keep`, cached beside it: kept_pieces.h), or a SentencePiece model, MODEL.model. The last
// two throw for text that is not UTF-8. All throw for a part without text.
WordCorpus load_words(const std::string& data, const std::string& pieces, bool keep = true);
// The same with given pieces, for example those of a checkpoint.
WordCorpus load_words(const std::string& data, std::shared_ptr<const WordPieces> pieces);

// Splits a stream into chunks of N ids (the last one has the remainder), each padded to N + 1. The
// first N ids are inputs, the last N targets: the last target of each chunk is pad, and the first
// id of a chunk is never a target (as in the perplexity of Spellings 2019).
class WordChunks {
 public:
  WordChunks(std::span<const std::int32_t> ids, i64 length, std::int32_t pad);

  i64 count() const { return count_; }
  i64 batches(i64 size) const { return (count_ + size - 1) / size; }
  std::span<const std::int32_t> ids() const { return ids_; }
  Batch batch(std::span<const i64> chunks) const;  // these chunks, [B, N]

 private:
  std::span<const std::int32_t> ids_;
  i64 length_, count_;
  std::int32_t pad_;
};

}  // namespace weft
