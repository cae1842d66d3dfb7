#include "apps/training/trial_step.h"

#include "apps/command_line/device_option.h"
#include "apps/training/signal_watch.h"
#include "runtime/allocator.h"
#include "runtime/communicator.h"

namespace weft {

TrialStep::TrialStep(const Task& task, const TrainOptions& options, Optimizer& optimizer)
    : task_(task),
      options_(options),
      optimizer_(optimizer),
      device_(task.parameters.at(0).variable.value().device()),
      gradient_(task, options.shards) {
  best_.keep(task.tensors);
}

void TrialStep::operator()(const std::function<void(const char*)>& ended) {
  std::vector<Tensor> batch = task_.batch(++number_);
  for (Tensor& tensor : batch) tensor = tensor.to(device_);
  ended("batch");
  gradient_(batch, {.number = number_}, gradient_.saying());
  ended("gradient");
  optimizer_.step(options_.learning_rate(number_), options_.clip);
  wait_for(device_);
  ended("optimizer");
}

MeanTime mean_time(const std::function<void()>& step) {
  constexpr double enough_seconds = 2;
  constexpr int enough_steps = 5;
  const Stopwatch watch;
  for (int count = 1;; ++count) {
    step();
    const double seconds = watch.seconds();
    const bool enough = ranks().alone() && seconds > enough_seconds;
    if (count == enough_steps || enough) return {seconds / count, count};
  }
}

namespace {

// The peak of memory in a step with so many shards. Of these only two run: the first one, and one
// whose gradient is added to those before.
std::size_t peak_of_step(const Task& task, TrainOptions options, i64 shards, Optimizer& optimizer) {
  struct Enough {};
  options.shards = shards;
  Task measured = task;
  measured.loss = [&](const std::vector<Tensor>& batch, const Task::Step& step) {
    if (step.part == 2) throw Enough();
    return task.loss(batch, step);
  };
  TrialStep step(measured, options, optimizer);
  CachingAllocator& memory = allocator(step.device());
  memory.reset_peak();
  try {
    step();
  } catch (const Enough&) {
  }
  return memory.counts().peak;
}

}  // namespace

std::string shards_that_fit(const Task& task, const TrainOptions& options, Optimizer& optimizer,
                            Progress& progress) {
  if (!ranks().alone()) return "";
  const i64 batch = task.batch(1).at(0).size(0);
  i64 tried = 0;
  for (i64 shards = options.shards; shards <= batch; ++shards) {
    if (shards < 2 * tried || batch % shards != 0) continue;
    if (SignalWatch::caught() != 0) return "";
    progress.update(fmt::format("memory ran out; trying --shards {}", shards));
    tried = shards;
    try {
      const std::size_t peak = peak_of_step(task, options, shards, optimizer);
      if (shards == options.shards) return "";
      return fmt::format(
          "; --shards {} fits: with {} of the {} examples at a time, {:.0f} MiB at the peak of a "
          "step (measured)",
          shards, batch / shards, batch, static_cast<double>(peak) / (1 << 20));
    } catch (const OutOfMemory&) {
    }
  }
  return "; not even one example at a time fits";
}

}  // namespace weft
