// What lra trains: the task for the training loop.
#pragma once

#include "apps/lra/evaluate.h"

namespace weft::lra {

// Training on the task's part; both stay where they are meanwhile. The best round is that of the
// most validation sequences right.
Task training_task(const Model& model, const SequenceTask& data, SequenceBatches& batches);

}  // namespace weft::lra
