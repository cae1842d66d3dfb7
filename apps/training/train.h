// The training loop of every app: rounds of steps, validation, patience, logs, checkpoints, and the
// handling of values that are not finite. The app defines the loss and the name of a round: "epoch"
// if it is a pass over the data.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "apps/command_line/progress.h"
#include "apps/command_line/settings.h"
#include "apps/training/run_folder.h"
#include "nn/context.h"
#include "nn/module.h"
#include "nn/optimizer.h"
#include "ops/pointwise/pointwise.h"

namespace weft {

// A named figure of a measurement: "top_1" in logs, "84.81 % top-1" on the validation line.
struct Figure {
  std::string key, unit;
  double value = 0;
};

// The measurements of a pass over data: means over its targets.
struct Measure {
  double loss = std::numeric_limits<double>::infinity();  // the training objective, in nats
  double cross_entropy = loss;  // the loss without penalties, in nats per target
  std::vector<Figure> figures = {};
};

// The figure with this key; throws if there is none.
double figure_of(const Measure& measure, const std::string& key);

// Called occasionally with the fraction done.
using Advance = std::function<void(double)>;

// How cross-entropy is displayed: "bits_per_character" in logs, "bpc" on the progress line.
struct Score {
  const char* key;
  const char* unit;
  double (*of)(double cross_entropy);
};

// What an app provides for the loop.
struct Task {
  struct Loss {
    Variable loss;         // one element: cross-entropy and penalties
    Tensor cross_entropy;  // one element
  };
  // The number of a step (1, 2, …), or its address in device memory; and which examples of the
  // batch the loss is of.
  struct Step {
    std::uint32_t number = 0;
    const std::uint32_t* at = nullptr;
    i64 first_example = 0;    // the place of their first one in the batch of all ranks
    i64 part = 0, parts = 1;  // the shard among those of this rank

    // Random numbers are a function of seed, step and the place of an example in the batch: the
    // same for any number of shards and ranks.
    Context context(const TrainingSettings& settings) const {
      Context context(true, settings.seed, number, at, first_example);
      context.recompute = settings.recompute;
      return context;
    }
    // This shard's rows of what has a row for each example of this rank's.
    Tensor rows_of(const Tensor& x) const {
      const i64 rows = x.size(0) / parts;
      return parts == 1 ? x : x.slice(0, part * rows, (part + 1) * rows);
    }
  };

  std::vector<NamedParameter> parameters;
  std::vector<NamedBuffer> buffers;
  std::vector<NamedTensor> tensors;  // parameters and buffers, for checkpoints
  std::uint64_t seed = 0;            // of buffers that are redrawn
  // This rank's rows of the batch of this step, on the CPU. Shapes are the same at every step. The
  // first tensor has a row for each example; a tensor of one element belongs to all rows.
  std::function<std::vector<Tensor>(std::uint32_t step)> batch;
  // The mean loss on a shard of such a batch, on the parameters' device; recorded if a tape exists.
  std::function<Loss(const std::vector<Tensor>& batch, const Step& step)> loss;
  // State besides weights that is carried from step to step, with a row for each example of this
  // rank; saved in checkpoints.
  std::vector<NamedTensor> carried;
  // Called after each step: copies the step's new state to `carried` if `updated`, one element on
  // the parameters' device, is 1; it is 0 for a skipped step. Undefined: no state.
  std::function<void(const Tensor& updated)> carry;
  // Measures the model on held-out data; calls `advance` occasionally with the fraction done.
  std::function<Measure(const Advance& advance)> validate;
  // Runs the batches of validation and test that are smaller than the others, so that the dry run
  // measures their memory. Undefined: none.
  std::function<void()> odd_batches;
  // The quantity that is smallest in the best epoch; undefined: the loss.
  std::function<double(const Measure&)> criterion;
  // Called after the validation of an epoch is logged; may be undefined.
  std::function<void(i64 epoch)> validated;
  const char* round = "epoch";  // name, also in logs, of the steps between two validations
  i64 targets_per_step = 1;
  // Additions and multiplications of the matrix products of one step: three times the forward pass.
  // Attention's two forward products count as seven, causal pairs once. ACT counts as if every
  // position used the whole depth.
  double operations = 0;
  bool operations_at_most = false;  // what the model learns may need fewer
  Score score{};
  // Saved in every checkpoint. A resumed training must have the same, except for the version and
  // the configuration.
  std::map<std::string, std::string> metadata;
  std::map<std::string, double>* notes = nullptr;  // the app's values in checkpoints; null: none
};

// Sets a task's parameters and buffers to those of a module.
template <class Module>
void take_parts(Task& task, Module& module, std::uint64_t seed) {
  task.parameters = parameters(module);
  task.buffers = buffers(module);
  task.tensors = tensors(module);
  task.seed = seed;
}

// The loss of a step: cross-entropy plus the penalties gathered in the context.
inline Task::Loss with_penalty(const Context& context, const Variable& entropy) {
  const Variable penalty = context.penalty();
  return {penalty.defined() ? add(entropy, penalty) : entropy, entropy.value()};
}

struct TrainOptions {
  static constexpr i64 most_failures_in_a_row = 3;  // steps that are not finite end the training

  i64 steps = 1;        // total
  i64 epoch_steps = 1;  // per round; validation follows each round and the last step
  i64 patience = 0;     // validations without a better one; 0: no limit
  std::function<double(i64 step)> learning_rate;
  double clip = std::numeric_limits<double>::infinity();  // largest norm of the gradient
  i64 report_steps = 100;
  i64 checkpoint_steps = 0;  // steps between checkpoints; 0: only after validations
  i64 shards = 1;            // of a batch (nn/gradient_sum.h); the number of ranks divides it
  bool graph = true;         // on a CUDA device: capture one step and replay it
  bool detect_anomaly = false;
};

enum class Ending { complete, out_of_patience, interrupted, not_finite };

struct TrainResult {
  Ending ending = Ending::complete;
  int signal = 0;  // the signal that interrupted training; 0: none
  i64 steps = 0;
  i64 skipped = 0;     // steps whose update was skipped
  i64 best_epoch = 0;  // 0: no validation
  Measure best;
};

// Trains until one of the endings. The parameters are then those of the best validation, or the
// last ones if there was none. If the folder has a checkpoint to resume, training continues from
// it; the checkpoints and the losses in the log are bit for bit those of a training without
// interruption.
//
// A report is logged after every report_steps, at the end and, until the first report, before each
// validation. A validation is logged with the training loss since the validation before.
//
// A checkpoint is written before the first step, after every validation, and at the end.
//
// A step whose loss or gradient is not finite is skipped: it changes nothing and is logged with its
// number, from which its batch and random numbers can be reproduced. Three in a row end the
// training. So does an update that makes a weight not finite; it is undone. Such a training cannot
// be resumed. On a CUDA device several steps may be queued before the outcome of the first is
// known. SIGINT and SIGTERM end training after the step, with a checkpoint; a second signal kills
// the process. SIGUSR1 writes a checkpoint.
//
// Several ranks train as one. All call this with the same task. Only rank 0 writes the folder, and
// broadcasts what it resumes. With the outcome of every step the ranks learn of signals that any of
// them caught, and end together. An error on one rank throws there, and its program ends all
// (Communicator::end_all).
//
// With detect_anomaly the first value that is not finite ends training and is named on stderr and
// in the log (anomaly.h); on a CUDA device steps are then neither queued nor captured.
TrainResult train(const Task& task, const TrainOptions& options, Optimizer& optimizer,
                  RunFolder& folder, Progress& progress);

// Whether the saved training is complete. Throws if it cannot be resumed with this task, or already
// has more steps than `options` asks for.
bool is_over(const SavedTraining& saved, const Task& task, const TrainOptions& options,
             const std::string& source);

}  // namespace weft
