// What charlm trains: the task for the training loop.
#pragma once

#include "apps/charlm/model.h"
#include "apps/data/text.h"
#include "apps/training/train.h"

namespace weft::charlm {

// Training on random windows of parts.train, or, with a memory, on contiguous texts of it; model
// and parts stay where they are meanwhile.
Task training_task(const Model& model, const Parts& parts);

}  // namespace weft::charlm
