// Settings that all training apps share. An app names each of its settings once, in a function
//
//     template <class SomeSettings, class F>
//     void each_setting(SomeSettings& s, const F& f) {
//       f("batch", s.batch, Limits{1, 65536}, "help");
//       …
//     }
//
// The name is the command-line option (command_line.h) and the key in a checkpoint
// (configuration.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/error.h"
#include "runtime/types.h"

namespace weft {

// The range of a number, and whether all checkpoints contain it.
struct Limits {
  double least = 0, most = std::numeric_limits<double>::infinity();
  bool open = false;   // the range excludes both ends
  bool later = false;  // older checkpoints lack it; the default applied to them
};

// The setting of every network for its precision; f(name, value, limits, help).
template <class Text, class F>
void precision_setting(Text& precision, const F& f) {
  f("precision", precision, Limits{.later = true},
    "f32; tf32: products round their operands, on CUDA devices; or bf16: activations in bf16, "
    "parameters and sums in f32");
}

// Each throws, naming the option, for a value outside the limits or an unknown word.
void check_limits(const std::string& name, double value, const Limits& limits);
void check_word(const std::string& name, const std::string& value,
                const std::vector<std::string>& known);

// Settings of training.
struct TrainingSettings {
  i64 batch = 32;
  i64 shards = 1;
  bool recompute = false;      // the blocks' activations, in backward
  bool overfit_batch = false;  // train on the first batch alone
  std::string optimizer = "adamw";
  double lr = 0.01;
  std::string schedule = "cosine";
  i64 warmup = 100;
  double min_lr = 0;
  double clip = 1;  // 0: none
  i64 epochs = 5;
  i64 steps = 0;     // 0: `epochs` decides
  i64 patience = 0;  // 0: none
  std::uint64_t seed = 1;

  // Examples that are computed together.
  i64 at_once() const { return std::max<i64>(1, batch / shards); }
  i64 total_steps(i64 epoch_steps) const { return steps > 0 ? steps : epochs * epoch_steps; }
};

template <class SomeSettings, class F>
void each_training_setting(
    SomeSettings& s, const F& f,
    const char* epochs_help = "largest number of passes over the training data") {
  constexpr Limits any{}, positive{0, 1e6, true}, or_none{0, 1e9};
  f("batch", s.batch, Limits{1, 65536}, "examples per step");
  f("shards", s.shards, Limits{.least = 1, .most = 65536, .later = true},
    "parts of the batch whose gradients are added; several processes share them");
  f("recompute", s.recompute, Limits{.later = true},
    "keep the input of each block alone for the backward pass, where the block runs again: less "
    "memory, more time");
  f("overfit-batch", s.overfit_batch, Limits{.later = true},
    "train on the first batch in every step, to see that the model can learn it: its loss "
    "approaches that of a perfect guess");
  f("optimizer", s.optimizer, any, "adadelta, adam, adamw or sgd, as name:option=value");
  f("lr", s.lr, positive, "learning rate; --optimizer without --lr sets the optimizer's default");
  f("schedule", s.schedule, any, "of the learning rate over the steps: constant, cosine or linear");
  f("warmup", s.warmup, or_none, "steps over which the learning rate rises");
  f("min-lr", s.min_lr, Limits{.most = 1e6, .later = true},
    "final learning rate of cosine and linear");
  f("clip", s.clip, or_none, "largest norm of the gradient; 0: none");
  f("epochs", s.epochs, Limits{1, 1e6}, epochs_help);
  f("steps", s.steps, or_none, "total number of steps; 0: --epochs decides");
  f("patience", s.patience, or_none,
    "stop after this many validations without improvement; 0: never");
  f("seed", s.seed, any, "random seed of weights, batches and dropout");
}

// Checks the words among the training settings.
void check_training(const TrainingSettings& settings);
// Checks combinations of settings. Call it before a training starts.
void check_together(const TrainingSettings& settings);
template <class Settings>
void check_numbers(const Settings& settings) {
  each_setting(settings,
               [](const std::string& name, const auto& value, const Limits& limits, const char*) {
                 if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
                   if (name != "seed") check_limits(name, static_cast<double>(value), limits);
                 }
               });
}

// Options of every training command that are not settings of the model or the training.
struct RunOptions {
  std::string out;           // folder of the run; empty: nothing is written
  i64 keep = 2;              // checkpoints to keep, besides that of the best model
  i64 checkpoint_steps = 0;  // steps between checkpoints; 0: only after validations
  std::string device = "cpu";
  bool graph = true;     // on a CUDA device: capture one step and replay it
  int threads = 0;       // 0: one per core
  double timeout = 600;  // seconds that several processes wait for each other
  i64 report_steps = 100;
  bool quiet = false;
  bool json_lines = false;
  bool detect_anomaly = false;
  std::vector<std::uint64_t> seeds;  // train once with each; empty: with the settings' seed

  // For one invocation; not part of a configuration file.
  std::vector<std::string> config;  // configuration files; later ones override earlier ones
  bool print_config = false;        // print the configuration instead of training
  bool dry_run = false;             // measure a step instead of training
  bool profile = false;             // measure the ops of a step instead of training
  bool force = false;               // replace an existing run
  bool resume = false;              // resume the run in `out`
  std::string resume_command;       // the shell command that resumes this run; empty without `out`
  std::string precision_before;     // of the resumed run, if it changes

  bool only_measures() const { return dry_run || profile; }
  bool silent() const { return quiet || json_lines; }  // print no progress
};

inline constexpr const char* threads_help = "number of threads; default: one per core";
inline constexpr const char* allow_leaky_help = "accept attention that is not strictly causal";

// Calls f(name, value, help) for each run option that a configuration file may hold, except
// --threads, which every command has.
template <class SomeRun, class F>
void each_run_option(SomeRun& run, const F& f) {
  f("out", run.out, "folder for the models and the log");
  f("keep", run.keep, "checkpoints to keep, besides that of the best model");
  f("checkpoint-steps", run.checkpoint_steps,
    "steps between two checkpoints; 0: one after each validation");
  f("device", run.device, "cpu, cuda or cuda:N");
  f("graph", run.graph, "on a CUDA device: capture one step and replay it (the default)");
  f("timeout", run.timeout, "seconds that a process of several waits for the others");
  f("report-steps", run.report_steps, "steps between two lines of the log");
  f("quiet", run.quiet, "print nothing but errors");
  f("json-lines", run.json_lines, "print the lines of metrics.jsonl, and nothing else");
  f("detect-anomaly", run.detect_anomaly,
    "stop at the first value that is not finite, and name its op and tensor (slow)");
  f("seeds", run.seeds, "1,2,3: train once per seed, and print mean and standard error");
}

// The options of an app's commands.
template <class Settings>
struct TrainCommand {
  Settings settings;
  RunOptions run;
};
template <class Settings>
struct InfoCommand {
  Settings settings;
  std::string checkpoint;  // empty: a new model of these settings
  bool json = false;
};

// Throws, naming the option, for an invalid one.
void check(const RunOptions& run);
// The folders that the run writes to: `out`, or OUT/seed-N for each seed.
std::vector<std::string> folders_of(const RunOptions& run);

}  // namespace weft
