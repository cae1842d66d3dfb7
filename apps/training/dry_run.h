// --dry-run: measures the cost of a training with a few steps, whose results are discarded.
#pragma once

#include "apps/training/train.h"

namespace weft {

struct StepCost {
  i64 parameters = 0;
  // Bytes of the weights, their gradients and the optimizer's state, computed from shapes.
  std::size_t weights = 0, gradients = 0, optimizer = 0;
  // Bytes on the device, measured: the activations saved for backward, and the peak during a step,
  // which includes all of the above and the training's copies of weights.
  std::size_t activations = 0, peak = 0;
  // Bytes of host memory, measured: the process at its start; the growth of its peak size up to the
  // first step (data, weights, their copies), by two steps, by a validation batch and by a
  // checkpoint; and the peak size itself.
  std::size_t program = 0, data = 0, steps = 0, validation = 0, checkpoint = 0, process = 0;
  double operations = 0;  // of the matrix products, computed: Task::operations
  bool operations_at_most = false;
  double seconds = 0;     // per step, measured: mean of a few steps after the first
};

// Runs two steps without a graph (the second one runs with the allocations of the first), a
// validation batch, and a few steps for the time. All of them change the parameters.
StepCost cost_of_step(const Task& task, const TrainOptions& options, Optimizer& optimizer);

// Prints the cost and the number of steps, as one JSON object or as text.
void print_dry_run(const Task& task, const TrainOptions& options, Optimizer& optimizer, bool json);

}  // namespace weft
