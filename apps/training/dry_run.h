// --dry-run: measures the cost of a training with a few steps, whose results are discarded.
#pragma once

#include "apps/training/train.h"

namespace weft {

// Prints the cost and the number of steps, as one JSON object or as text.
void print_dry_run(const Task& task, const TrainOptions& options, Optimizer& optimizer, bool json);

}  // namespace weft
