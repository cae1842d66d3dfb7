// --dry-run: what a training takes, by its first moments, which are done and forgotten.
#pragma once

#include "apps/training/train.h"

namespace weft {

struct StepCost {
  i64 parameters = 0;
  // Bytes of the weights, of their gradients and of the optimizer's state, by their shapes.
  std::size_t weights = 0, gradients = 0, optimizer = 0;
  // Bytes on the device, measured: what the forward pass leaves for the backward pass, and the most
  // at any time of the step, all of the above included, and what copies a training holds there.
  std::size_t activations = 0, peak = 0;
  // Bytes of the machine's memory, measured: of the program when it began; what its largest size
  // grew by until the first step (data, weights, their copies), by two steps, by a batch of
  // validation and by what a checkpoint holds; and that size.
  std::size_t program = 0, data = 0, steps = 0, validation = 0, checkpoint = 0, process = 0;
  double operations = 0;  // of the matrix products, counted: Task::operations
  double seconds = 0;     // of a step, measured: the mean of some behind the first
};

// Does two steps, as they come (without a graph): the second one finds what the first one leaves.
// Then a batch of validation, and some steps for their time. The parameters are those after them.
StepCost cost_of_step(const Task& task, const TrainOptions& options, Optimizer& optimizer);

// Prints that, and how many steps there would be; as one JSON object or for people.
void print_dry_run(const Task& task, const TrainOptions& options, Optimizer& optimizer, bool json);

}  // namespace weft
