// Training steps on a CUDA device: queued asynchronously and replayed as a CUDA graph.
#pragma once

#include <memory>

#include "apps/training/step_gradient.h"
#include "runtime/device.h"

namespace weft {

// The outcome of a step.
struct Outcome {
  std::uint32_t step = 0;
  double loss = 0, cross_entropy = 0;
  double norm = 0;      // of the gradient
  double rate = 0;      // learning rate
  bool updated = true;  // false: loss or gradient was not finite, and the update was skipped
  bool finite = true;   // false: the update made a weight not finite
  StepGradient::Words heard{};
};

class QueuedSteps {
 public:
  virtual ~QueuedSteps() = default;
  // Requires room(). `said` is what this rank says to the others with the step.
  virtual void submit(std::uint32_t step, const StepGradient::Words& said) = 0;
  virtual bool room() const = 0;
  virtual bool any() const = 0;  // whether there are steps whose outcome was not taken yet
  virtual Outcome take() = 0;    // waits for the oldest step
};

// For a task with parameters on a CUDA device. The arguments must outlive the result.
std::unique_ptr<QueuedSteps> queued_steps(const Cuda& device, const Task& task,
                                          const TrainOptions& options, Optimizer& optimizer);

// Null for a task on the CPU.
std::unique_ptr<QueuedSteps> queue_for(const Task& task, const TrainOptions& options,
                                       Optimizer& optimizer);

}  // namespace weft
