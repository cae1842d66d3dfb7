// A model of words on text: its training, and how well it predicts.
#pragma once

#include "apps/common/word_corpus.h"
#include "apps/wordlm/model.h"

namespace weft::wordlm {

// Steps of a training on these chunks, or, with a memory, on the contiguous texts of their ids.
i64 epoch_steps(const Settings& settings, const WordChunks& training);

// Over the chunks of a part as the agglomerative-attention paper counts: the last target of each is
// padding, which a model soon learns for nothing, and the first id is no target. Its perplexity is
// `row_perplexity`, the mean of exponentials over the chunks.
Pass pass_over_chunks(const UniversalTransformer& network, const WordChunks& chunks, i64 batch,
                      const Advance& advance);

// Training on all chunks of `training` every epoch, in another order each; the last batch is filled
// up with the first chunks of the epoch. With a memory it is on contiguous texts of their ids. All
// of these stay where they are meanwhile.
Task training_task(const Model& model, const WordChunks& training, const WordChunks& validation);

// Task::odd_batches.
void odd_batches(const Model& model, const WordCorpus& corpus);

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
