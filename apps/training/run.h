// Runs the training of a command, for one seed or several: its folder, its result, the mean over
// seeds.
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
// The device of a run, whose products go by the precision from here on. Throws if it has no TF32.
Device device_of(const RunOptions& run, const std::string& precision);
// Says what there is to say about the precision: that a resumed run changes it, or that bf16 will
// not be faster here.
void print_precision(const std::string& precision, const RunOptions& run, Progress& progress);
// The line that tells where the run is kept.
std::string kept(const RunOptions& run);

// The result of one training.
struct Trained {
  int status = 0;               // 0; 4 if it diverged; 128 + the signal that ended it
  std::vector<Figure> figures;  // test results
};
// If the folder's run is complete: prints its result again and returns it. Throws if the run cannot
// be resumed with this task.
std::optional<Trained> ended_before(const RunFolder& folder, const Task& task,
                                    const TrainOptions& options, Progress& progress);
// Scores the trained model on the test part; calls `advance` occasionally, which throws if a signal
// ends the program.
using Scoring =
    std::function<std::vector<Figure>(const TrainResult& result, const Advance& advance)>;
// Trains, then scores the model, or prints the reason if either ended early. With --dry-run it
// prints the cost of a step instead, with --profile that of its ops.
Trained run_training(const Task& task, const TrainOptions& options,
                     const TrainingSettings& settings, const RunOptions& run, RunFolder& folder,
                     Progress& progress, const Scoring& score);

// Trains once with `seed`, or once with each of run.seeds, each in its own folder (OUT/seed-1, …).
// For run.seeds it prints mean and standard error of every figure, of one seed the mean alone, and
// writes them to OUT/replicas.json, with run.json_lines also to standard output. Returns the first
// exit status that is not 0. When resumed, it continues the trainings that have begun and starts
// the others.
int train_replicas(const RunOptions& run, std::uint64_t seed,
                   const std::function<Trained(std::uint64_t seed, const RunOptions& run)>& once);
// The same for a command with `settings` and `run`: calls once() with a copy that has its own seed
// and folder.
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
