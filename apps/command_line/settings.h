// What the settings of every app have in common. An app names each of its settings once, in a
//
//     template <class SomeSettings, class F>
//     void each_setting(SomeSettings& s, const F& f) {
//       f("batch", s.batch, Limits{1, 65536}, "help");
//       …
//     }
//
// The name is the option on the command line (command_line.h) and the key in a checkpoint
// (configuration.h).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/error.h"
#include "runtime/types.h"

namespace weft {

// What values a number may have, and which checkpoints say it.
struct Limits {
  double least = 0, most = std::numeric_limits<double>::infinity();
  bool open = false;   // both ends are outside of it
  bool later = false;  // older checkpoints lack it: the default is what held for them
};

// Each throws, naming the option, where the value is outside or no word that is known.
void check_limits(const std::string& name, double value, const Limits& limits);
void check_word(const std::string& name, const std::string& value,
                const std::vector<std::string>& known);

// How a model is trained.
struct TrainingSettings {
  i64 batch = 32;
  i64 shards = 1;
  std::string optimizer = "adamw";
  double lr = 0.01;
  std::string schedule = "cosine";
  i64 warmup = 100;
  double min_lr = 0;
  double clip = 1;  // 0: none
  i64 epochs = 5;
  i64 steps = 0;     // 0: by epochs
  i64 patience = 0;  // 0: none
  std::uint64_t seed = 1;

  i64 total_steps(i64 epoch_steps) const { return steps > 0 ? steps : epochs * epoch_steps; }
};

template <class SomeSettings, class F>
void each_training_setting(SomeSettings& s, const F& f,
                           const char* epochs_help = "passes over the training data, at most") {
  constexpr Limits any{}, positive{0, 1e6, true}, or_none{0, 1e9};
  f("batch", s.batch, Limits{1, 65536}, "examples in a step");
  f("shards", s.shards, Limits{.least = 1, .most = 65536, .later = true},
    "parts of the batch, whose gradients are added; several processes share them");
  f("optimizer", s.optimizer, any, "adadelta, adam, adamw or sgd, as name:option=value");
  f("lr", s.lr, positive, "learning rate; another optimizer brings its own default");
  f("schedule", s.schedule, any, "of the learning rate: constant, cosine or linear");
  f("warmup", s.warmup, or_none, "steps over which the learning rate rises");
  f("min-lr", s.min_lr, Limits{.most = 1e6, .later = true},
    "the learning rate that cosine and linear fall to");
  f("clip", s.clip, or_none, "largest norm of the gradient; 0: none");
  f("epochs", s.epochs, Limits{1, 1e6}, epochs_help);
  f("steps", s.steps, or_none, "in all, instead of epochs; 0: by epochs");
  f("patience", s.patience, or_none, "validations without a better one; 0: no limit");
  f("seed", s.seed, any, "of the weights, the batches and the dropout");
}

// The limits of every number, and the words of the training.
void check_training(const TrainingSettings& settings);
// What only all of them together can have wrong: for a training that is about to begin.
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

// What every training command takes besides the settings.
struct RunOptions {
  std::string out;                    // folder to keep the run in; empty: nothing is kept
  i64 keep = 2;                       // checkpoints, besides that of the best model
  i64 checkpoint_steps = 0;           // between two of them; 0: only after validations
  std::string device = "cpu";
  bool graph = true;  // on a CUDA device: replay one captured step
  int threads = 0;    // 0: one a core
  double timeout = 600;  // seconds that several processes wait for each other
  i64 report_steps = 100;
  bool quiet = false;
  bool json_lines = false;
  bool detect_anomaly = false;
  std::vector<std::uint64_t> seeds;  // train once with each; empty: with the settings' own

  // Asked for at one time alone.
  std::vector<std::string> config;  // files of options; later ones stand above
  bool print_config = false;        // instead of training
  bool dry_run = false;             // the same
  bool force = false;               // replace a run that is there
  bool resume = false;              // go on with it
  std::string resume_command;       // what goes on with this run

  bool silent() const { return quiet || json_lines; }  // no words for people
};

inline constexpr const char* threads_help = "that compute; by default one a core";
inline constexpr const char* allow_leaky_help = "also an attention that is not strictly causal";

// Calls f(name, value, help) for each of those of one run or another, but for the threads, which
// every command has.
template <class SomeRun, class F>
void each_run_option(SomeRun& run, const F& f) {
  f("out", run.out, "folder to keep the models and the log in");
  f("keep", run.keep, "checkpoints to keep, besides that of the best model");
  f("checkpoint-steps", run.checkpoint_steps,
    "steps between two checkpoints; 0: one after each validation");
  f("device", run.device, "cpu, cuda or cuda:N");
  f("graph", run.graph, "on a CUDA device: capture one step and replay it (the default)");
  f("timeout", run.timeout, "seconds that a process of several waits for the others");
  f("report-steps", run.report_steps, "steps between two lines of the log");
  f("quiet", run.quiet, "print nothing for people to read, but errors");
  f("json-lines", run.json_lines, "print the lines of metrics.jsonl, and nothing else");
  f("detect-anomaly", run.detect_anomaly,
    "name the op and the tensor of the first value that is not finite, and stop (slow)");
  f("seeds", run.seeds, "as in 1,2,3: train with each, and say mean and standard error");
}

// What an app's commands are told.
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

// Throws, naming the option, where one of them is no good.
void check(const RunOptions& run);
// The folders that the run's trainings write to: `out`, or one of each seed below it.
std::vector<std::string> folders_of(const RunOptions& run);

}  // namespace weft
