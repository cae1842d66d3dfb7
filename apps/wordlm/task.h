// wordlm's task for the training loop.
#pragma once

#include "apps/data/word_corpus.h"
#include "apps/wordlm/model.h"

namespace weft::wordlm {

// Steps per epoch on these chunks or, with a memory, on contiguous streams of their ids.
i64 epoch_steps(const Settings& settings, const WordChunks& training);

// Trains on all chunks of `training` every epoch, each epoch in another order; the last batch is
// completed with the first chunks of the epoch. With a memory it trains on contiguous streams of
// their ids. All arguments must outlive the task.
Task training_task(const Model& model, const WordChunks& training, const WordChunks& validation);

// Implements Task::odd_batches.
void odd_batches(const Model& model, const WordCorpus& corpus);

}  // namespace weft::wordlm
