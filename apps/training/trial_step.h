// Steps of a training that are measured and whose results are discarded: of --dry-run, of
// --profile, and of the search for what fits into memory.
#pragma once

#include <cstdint>
#include <functional>

#include "apps/training/step_gradient.h"
#include "apps/training/weights.h"

namespace weft {

class TrialStep {
 public:
  // The arguments must outlive this object. It holds what a training holds beside its step: a copy
  // of the best weights.
  TrialStep(const Task& task, const TrainOptions& options, Optimizer& optimizer);

  // Runs the next step, neither queued nor captured, and waits for the device. It changes the
  // parameters. `ended` is called after each of its parts: "batch", "gradient" and "optimizer".
  void operator()(const std::function<void(const char* part)>& ended = [](const char*) {});

  Device device() const { return device_; }

 private:
  const Task& task_;
  const TrainOptions& options_;
  Optimizer& optimizer_;
  Device device_;
  Weights best_;
  StepGradient gradient_;
  std::uint32_t number_ = 0;
};

// The mean time and the number of a few calls of `step`, which ran before and allocated the memory
// that these reuse. Several ranks call it equally often.
struct MeanTime {
  double seconds = 0;
  int steps = 0;
};
MeanTime mean_time(const std::function<void()>& step);

// For the report that memory ran out: the smallest number of shards with which a step fits, found
// by running parts of steps, and what it takes: "; --shards 8 fits: …". Empty if a step fits as it is, since
// then something else did not, and on several ranks.
std::string shards_that_fit(const Task& task, const TrainOptions& options, Optimizer& optimizer,
                            Progress& progress);

}  // namespace weft
