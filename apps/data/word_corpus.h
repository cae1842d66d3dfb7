// Text as word pieces, in three parts, and the chunks that models of words read.
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
  i64 lines = 0;   // that are not blank
  i64 words = 0;   // runs of what is not white space, and an end for every line, blank or
                   // not, in the file as it is: what WikiText's perplexity is counted by
  i64 tokens = 0;  // ids of the stream
};

struct WordCorpus {
  std::shared_ptr<const WordPieces> pieces;
  PieceIds train, validation, test;  // WordPieces::stream()
  WordCounts train_counts, validation_counts, test_counts;
  std::vector<std::string> warnings;  // for the user: what was wrong with kept pieces
};

// Throws, with those that exist, where `pieces` names none.
void check_pieces(const std::string& pieces);

// `data` is "builtin" (sentences of corpus.h), a folder with wiki.{train,valid,test}.tokens or
// {train,valid,test}.txt, or a file, whose lines are shared 90/5/5. `pieces` is "bpe" or
// "bpe:merges=N" (byte_pieces.h, learnt from the training part), "paper" (learnt from it too, and,
// with `keep`, kept beside it: kept_pieces.h) or SentencePiece's MODEL.model. Text that is not
// UTF-8 is an error for these last two, and so is a part without text for all.
WordCorpus load_words(const std::string& data, const std::string& pieces, bool keep = true);
// The same with these pieces, those of a checkpoint say.
WordCorpus load_words(const std::string& data, std::shared_ptr<const WordPieces> pieces);

// A stream cut into chunks of N ids, the last one as long as what is left, each filled up with pad
// to N + 1. The first N are read, the last N are the targets: the last target of each chunk is pad,
// and the first id of a chunk is never one (Spellings 2019 counts perplexity so).
class WordChunks {
 public:
  WordChunks(std::span<const std::int32_t> ids, i64 length, std::int32_t pad);

  i64 count() const { return count_; }
  i64 batches(i64 size) const { return (count_ + size - 1) / size; }
  std::span<const std::int32_t> ids() const { return ids_; }
  Batch batch(std::span<const i64> chunks) const;  // those chunks, [B, N]

 private:
  std::span<const std::int32_t> ids_;
  i64 length_, count_;
  std::int32_t pad_;
};

}  // namespace weft
