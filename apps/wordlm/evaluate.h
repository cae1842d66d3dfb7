// The loss and perplexity of a word-level model.
#pragma once

#include "apps/data/word_corpus.h"
#include "apps/wordlm/model.h"

namespace weft::wordlm {

// The loss over the chunks of a part by the definition of the agglomerative-attention paper: the
// last target of each chunk is padding, which a model predicts almost perfectly, and the first id
// is not a target. The paper's perplexity is `row_perplexity`, the mean of exponentials over the
// chunks.
Pass pass_over_chunks(const UniversalTransformer& network, const WordChunks& chunks, i64 batch,
                      const Advance& advance);

// The perplexities of a part.
struct Perplexities {
  Pass chunks;       // by the paper's definition
  Pass all;          // every id but the first is a target once, no padding
  double token = 0;  // exp(mean cross-entropy over `all`)
  double word = 0;   // exp(total nats / number of words and line ends of the file as it is)
  double bits_per_character = 0;  // total bits / number of characters of the file as it is
};
Perplexities perplexities(const Model& model, std::span<const std::int32_t> ids,
                          const WordCounts& counts, const Advance& advance);

}  // namespace weft::wordlm
