// lra's task for the training loop.
#pragma once

#include "apps/lra/evaluate.h"

namespace weft::lra {

// Trains on data.train. All three arguments must outlive the task. The best round is the one with
// the highest validation accuracy.
Task training_task(const Model& model, const SequenceTask& data, SequenceBatches& batches);

}  // namespace weft::lra
