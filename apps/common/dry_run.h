// --dry-run: what a training step takes, by one that is done and forgotten.
#pragma once

#include "apps/common/train.h"

namespace weft {

struct StepCost {
  std::int64_t parameters = 0;
  // Bytes of the weights, of their gradients and of the optimizer's state, by their shapes.
  std::size_t weights = 0, gradients = 0, optimizer = 0;
  // Bytes on the device, measured: what the forward pass leaves for the backward pass, and the most
  // at any time of the step, all of the above included, and what copies a training holds there.
  std::size_t activations = 0, peak = 0;
  double operations = 0;  // of the matrix products, counted: Task::operations
};

// Does the first step, as it comes (without a graph); the parameters are then those after it.
StepCost cost_of_step(const Task& task, const TrainOptions& options, Optimizer& optimizer);

// Prints that, and how many steps there would be; as one JSON object or for people.
void print_dry_run(const Task& task, const TrainOptions& options, Optimizer& optimizer, bool json);

}  // namespace weft
