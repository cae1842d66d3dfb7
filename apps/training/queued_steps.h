// Training steps on a CUDA device: queued, not waited for, and replayed as one graph.
#pragma once

#include <memory>

#include "apps/training/train.h"
#include "runtime/device.h"

namespace weft {

// What became of a step.
struct Outcome {
  std::uint32_t step = 0;
  double loss = 0, cross_entropy = 0;
  double norm = 0;      // of the gradient
  double rate = 0;      // learning rate
  bool updated = true;  // false: loss or gradient was not finite, and nothing was written
  bool finite = true;   // false: the update made a weight not finite
};

class QueuedSteps {
 public:
  virtual ~QueuedSteps() = default;
  virtual void submit(std::uint32_t step) = 0;  // only where there is room
  virtual bool room() const = 0;
  virtual bool any() const = 0;  // steps whose outcome was not taken yet
  virtual Outcome take() = 0;    // the oldest; waits for it
};

// Of a task whose parameters are on a CUDA device; the references stay valid meanwhile.
std::unique_ptr<QueuedSteps> queued_steps(const Cuda& device, const Task& task,
                                          const TrainOptions& options, Optimizer& optimizer);

// Null for a task on the CPU, whose steps are not queued.
std::unique_ptr<QueuedSteps> queue_for(const Task& task, const TrainOptions& options,
                                       Optimizer& optimizer);

}  // namespace weft
