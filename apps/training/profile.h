// --profile: measures the ops of a training step.
#pragma once

#include "apps/training/train.h"

namespace weft {

// Runs a few steps, whose results are discarded, and prints for each op its calls, its time forward
// and backward and the bytes of its results, per step: as one JSON object or as a table. On a CUDA
// device every op is waited for, and steps are not captured. Of several ranks the first one prints
// its own.
void print_profile(const Task& task, const TrainOptions& options, Optimizer& optimizer, bool json);

}  // namespace weft
