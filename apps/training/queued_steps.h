// Training steps on a CUDA device: queued asynchronously and replayed as a CUDA graph.
#pragma once

#include <memory>

#include "apps/training/train.h"
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
};

class QueuedSteps {
 public:
  virtual ~QueuedSteps() = default;
  virtual void submit(std::uint32_t step) = 0;  // requires room()
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
