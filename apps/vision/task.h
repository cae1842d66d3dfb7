// vision's task for the training loop.
#pragma once

#include "apps/data/augment.h"
#include "apps/training/run.h"
#include "apps/vision/evaluate.h"

namespace weft::vision {

// Trains on parts.train. All three arguments must outlive the task. The best epoch is the one with
// the highest validation accuracy.
Task training_task(const Model& model, const Parts& parts, TrainingBatches& batches);

// train_options(), with a learning rate that changes between epochs only if settings.rate_by_epoch.
TrainOptions training_options(const Settings& settings, i64 epoch_steps,
                              const RunOptions& run = {});

}  // namespace weft::vision
