// What wordlm trains: the task for the training loop.
#pragma once

#include "apps/data/word_corpus.h"
#include "apps/wordlm/model.h"

namespace weft::wordlm {

// Steps of a training on these chunks, or, with a memory, on the contiguous texts of their ids.
i64 epoch_steps(const Settings& settings, const WordChunks& training);

// Training on all chunks of `training` every epoch, in another order each; the last batch is filled
// up with the first chunks of the epoch. With a memory it is on contiguous texts of their ids. All
// of these stay where they are meanwhile.
Task training_task(const Model& model, const WordChunks& training, const WordChunks& validation);

// Task::odd_batches.
void odd_batches(const Model& model, const WordCorpus& corpus);

}  // namespace weft::wordlm
