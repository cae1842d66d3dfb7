// From the words of a command to a training, and to several of them: its folder, its result, the
// mean of its seeds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line/settings.h"
#include "apps/training/train.h"

namespace weft {

TrainOptions train_options(const TrainingSettings& settings, i64 epoch_steps,
                           const RunOptions& run = {});
std::unique_ptr<RunFolder> run_folder(const RunOptions& run);
// The line that says what the run keeps, and where.
std::string kept(const RunOptions& run);

// What one training came to.
struct Trained {
  int status = 0;  // 0, 4 where it left the finite numbers, 128 + the signal that ended it
  std::vector<Figure> figures;  // of the test
};
// Where the folder's run was over and scored before: its result, which is said again. Throws where
// the run cannot go on as this task.
std::optional<Trained> ended_before(const RunFolder& folder, const Task& task,
                                    const TrainOptions& options, Progress& progress);
// Trains, says how that ended where it was before its time, and otherwise has the model scored. A
// dry run prints what a step takes instead.
Trained run_training(const Task& task, const TrainOptions& options,
                     const TrainingSettings& settings, const RunOptions& run, RunFolder& folder,
                     Progress& progress,
                     const std::function<std::vector<Figure>(const TrainResult&)>& score);

// Trains with `seed`, or, where there are run.seeds, with each of these after the other, in a
// folder of its own (OUT/seed-1, …): then it says the mean and the standard error of every figure,
// and writes them to OUT/replicas.json, with run.json_lines also to standard output. Returns the
// first exit status that is not 0. Where the run is resumed, each that has begun goes on and the
// others start.
int train_replicas(const RunOptions& run, std::uint64_t seed,
                   const std::function<Trained(std::uint64_t seed, const RunOptions& run)>& once);
// The same for a command with `settings` and `run`: once() is handed it with a seed and a folder of
// its own.
template <class Command>
int train_replicas(const Command& command, Trained (*once)(const Command& command)) {
  return train_replicas(command.run, command.settings.seed,
                        [&](std::uint64_t seed, const RunOptions& run) {
                          Command own = command;
                          own.settings.seed = seed;
                          own.run = run;
                          return once(own);
                        });
}

}  // namespace weft
