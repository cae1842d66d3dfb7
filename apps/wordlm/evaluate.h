// How well a model of words predicts.
#pragma once

#include "apps/data/word_corpus.h"
#include "apps/wordlm/model.h"

namespace weft::wordlm {

// Over the chunks of a part as the agglomerative-attention paper counts: the last target of each is
// padding, which a model soon learns for nothing, and the first id is no target. Its perplexity is
// `row_perplexity`, the mean of exponentials over the chunks.
Pass pass_over_chunks(const UniversalTransformer& network, const WordChunks& chunks, i64 batch,
                      const Advance& advance);

// What a part of a text gave.
struct Perplexities {
  Pass chunks;       // the paper's way
  Pass all;          // every id but the first once, no padding
  double token = 0;  // e to the mean over all.targets
  double word = 0;   // e to the sum of nats over the words and line ends of the file as it is
};
Perplexities perplexities(const Model& model, std::span<const std::int32_t> ids,
                          const WordCounts& counts, const Advance& advance);

}  // namespace weft::wordlm
