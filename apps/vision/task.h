// What vision trains: the task for the training loop.
#pragma once

#include "apps/data/augment.h"
#include "apps/training/run.h"
#include "apps/vision/evaluate.h"

namespace weft::vision {

// Training on parts.train; all three stay where they are meanwhile. The best epoch is that of the
// most validation pictures right.
Task training_task(const Model& model, const Parts& parts, TrainingBatches& batches);

// As train_options(), with rate_by_epoch.
TrainOptions training_options(const Settings& settings, i64 epoch_steps,
                              const RunOptions& run = {});

}  // namespace weft::vision
