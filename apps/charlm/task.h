// charlm's task for the training loop.
#pragma once

#include "apps/charlm/model.h"
#include "apps/data/text.h"
#include "apps/training/train.h"

namespace weft::charlm {

// Trains on random windows of parts.train or, with a memory, on contiguous streams of it. The model
// and the parts must outlive the task.
Task training_task(const Model& model, const Parts& parts);

}  // namespace weft::charlm
