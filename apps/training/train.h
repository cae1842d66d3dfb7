// The training loop of every app: rounds of steps, validation, patience, logs, checkpoints, and
// what is done when a number is no longer finite. The app says what a loss is, and what it calls a
// round: an epoch where that is a pass over its data.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "apps/command_line/progress.h"
#include "apps/training/run_folder.h"
#include "nn/context.h"
#include "nn/module.h"
#include "nn/optimizer.h"
#include "ops/pointwise/pointwise.h"

namespace weft {

// A further figure of a measurement: "top_1" in logs, "84.81 % top-1" on the validation's line.
struct Figure {
  std::string key, unit;
  double value = 0;
};

// What a pass over some data measured; means over its targets.
struct Measure {
  double loss = std::numeric_limits<double>::infinity();  // what training minimises, in nats
  double cross_entropy = loss;  // its part that is not a penalty, in nats a target
  std::vector<Figure> figures = {};
};

// How cross-entropy is shown: "bits_per_character" in logs, "bpc" on the progress line.
struct Score {
  const char* key;
  const char* unit;
  double (*of)(double cross_entropy);
};

// What the loop asks of an app.
struct Task {
  struct Loss {
    Variable loss;         // one element: cross-entropy and penalties
    Tensor cross_entropy;  // one element
  };
  // The number of a step (1, 2, …), or where it stands in the memory of the device; and which of
  // the batch's shards the loss is of.
  struct Step {
    std::uint32_t number = 0;
    const std::uint32_t* at = nullptr;
    i64 shard = 0;
    i64 part = 0, parts = 1;  // the same among those of this rank

    // Random numbers are a function of seed, step and shard, whichever rank computes it: the shard
    // stands in the upper sixteen bits of the seed.
    Context context(std::uint64_t seed) const {
      return {true, seed ^ static_cast<std::uint64_t>(shard) << 48, number, at};
    }
    // This shard's rows of what has a row for each example of this rank's.
    Tensor rows_of(const Tensor& x) const {
      const i64 rows = x.size(0) / parts;
      return parts == 1 ? x : x.slice(0, part * rows, (part + 1) * rows);
    }
  };

  std::vector<NamedParameter> parameters;
  std::vector<NamedBuffer> buffers;
  std::vector<NamedTensor> tensors;  // of both: what checkpoints hold
  std::uint64_t seed = 0;            // of buffers that are drawn anew
  // This rank's rows of the batch of this step, on the CPU; of the same shapes at every step. A
  // tensor of one element is of all rows.
  std::function<std::vector<Tensor>(std::uint32_t step)> batch;
  // The mean loss on a shard of it, on the device of the parameters; recorded where a tape is
  // alive.
  std::function<Loss(const std::vector<Tensor>& batch, const Step& step)> loss;
  // What goes from step to step beside weights, a row for each example of this rank's: checkpoints
  // keep it.
  std::vector<NamedTensor> carried;
  // Called behind each step: takes over what goes on from it into `carried`, where `updated`, one
  // element on the device of the parameters, is 1; a step that changed nothing leaves it.
  // Undefined: nothing.
  std::function<void(const Tensor& updated)> carry;
  // The same measure on data held out; calls `advance` now and then with the share that is done.
  std::function<Measure(const std::function<void(double)>& advance)> validate;
  // The batches of validation and of the final score that are smaller than the others: the dry run
  // measures what they take. Undefined: there are none.
  std::function<void()> odd_batches;
  // What the best epoch has least of; undefined: the loss.
  std::function<double(const Measure&)> criterion;
  // Called when an epoch was validated, and logged; undefined: nothing.
  std::function<void(i64 epoch)> validated;
  const char* round = "epoch";  // what steps from one validation to the next are called, and logged
  i64 targets_per_step = 1;
  // Additions and multiplications of the products of one step, counted: three times the forward
  // pass (seven products for five of attention's two), causal pairs once. ACT counts as if every
  // position took all of the depth.
  double operations = 0;
  Score score{};
  // Goes into every checkpoint. A training that goes on must have the same, but for the version and
  // the configuration.
  std::map<std::string, std::string> metadata;
  std::map<std::string, double>* notes = nullptr;  // the app's own, kept by checkpoints; null: none
};

// A task's parameters and buffers are those of a module.
template <class Module>
void take_parts(Task& task, Module& module, std::uint64_t seed) {
  task.parameters = parameters(module);
  task.buffers = buffers(module);
  task.tensors = tensors(module);
  task.seed = seed;
}

// The loss of a step whose model left its penalties in the context.
inline Task::Loss with_penalty(const Context& context, const Variable& entropy) {
  const Variable penalty = context.penalty();
  return {penalty.defined() ? add(entropy, penalty) : entropy, entropy.value()};
}

struct TrainOptions {
  i64 steps = 1;        // in all
  i64 epoch_steps = 1;  // of a round: validation comes after each, and at the end
  i64 patience = 0;     // validations without a better one; 0: no limit
  std::function<double(i64 step)> learning_rate;
  double clip = std::numeric_limits<double>::infinity();  // the gradient's largest norm
  i64 report_steps = 100;
  i64 checkpoint_steps = 0;  // between two checkpoints; 0: only after validations
  i64 shards = 1;            // of a batch (gradient_sum.h); the ranks divide them
  bool graph = true;  // on a CUDA device: replay one captured step
  bool detect_anomaly = false;
};

enum class Ending { complete, out_of_patience, interrupted, not_finite };

struct TrainResult {
  Ending ending = Ending::complete;
  int signal = 0;  // that interrupted
  i64 steps = 0;
  i64 skipped = 0;     // steps whose update was left out
  i64 best_epoch = 0;  // 0: none was validated
  Measure best;
};

// Trains until one of the endings; the parameters are then those of the best validation, or the
// last ones where there was none. Where the folder has a checkpoint to resume, the training goes on
// from there: to the same bits, in the checkpoints and in the log's losses, as if it had never
// stopped.
//
// A report is logged after each report_steps and at the end, and until the first of them before
// each validation. A validation is logged with the training's loss since the one before.
//
// A checkpoint is written before the first step, after every validation, and at the end.
//
// A step whose loss or gradient is not finite changes nothing: it is logged as skipped, with the
// step that keys its batch and random numbers, and three in a row end the training. So does an
// update that makes a weight not finite, which is taken back. Such a training cannot be resumed. On
// a CUDA device a few steps are under way before the outcome of the first is known. SIGINT and
// SIGTERM end it after the step, with a checkpoint; a second one kills. SIGUSR1 has one written.
//
// Several ranks train as one: all call this with the same task, and the first alone has a folder
// that keeps anything; it hands what it resumes to the others. They hear with every step of signals
// that came to any, and end together. An error on one of them throws on that one: its program ends
// all (Communicator::end_all).
//
// With detect_anomaly the first value that is not finite ends it, and is named on stderr and in the
// log (anomaly.h); on a CUDA device steps are then neither queued nor captured.
TrainResult train(const Task& task, const TrainOptions& options, Optimizer& optimizer,
                  RunFolder& folder, Progress& progress);

// Whether the training ends where it was saved. Throws where it cannot go on as this task, or has
// more steps behind it than there are in all.
bool is_over(const SavedTraining& saved, const Task& task, const TrainOptions& options,
             const std::string& source);

}  // namespace weft
