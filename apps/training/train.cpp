#include "apps/training/train.h"

#include <cmath>
#include <optional>

#include "apps/command_line/computed_by.h"
#include "apps/command_line/output.h"
#include "apps/training/among_ranks.h"
#include "apps/training/anomaly.h"
#include "apps/training/queued_steps.h"
#include "apps/training/signal_watch.h"
#include "apps/training/training_state.h"
#include "apps/training/weights.h"
#include "nn/initializer.h"
#include "runtime/communicator.h"
#include "runtime/dispatch.h"

namespace weft {

double figure_of(const Measure& measure, const std::string& key) {
  for (const Figure& figure : measure.figures) {
    if (figure.key == key) return figure.value;
  }
  fail("nothing measured {}", key);
}
namespace {

bool is_finite(const NamedParameter& parameter) {
  return all_finite(parameter.variable.value().to(Device{}));
}

// Whether training ends at this step.
bool ends_with(const TrainOptions& options, i64 step, bool validated, i64 best_epoch) {
  if (!validated || step == options.steps) return validated;
  const i64 epoch = (step - 1) / options.epoch_steps + 1;
  return options.patience > 0 && epoch - best_epoch >= options.patience;
}

class Training {
 public:
  Training(const Task& task, const TrainOptions& options, Optimizer& optimizer, RunFolder& folder,
           Progress& progress)
      : task_(task),
        options_(options),
        optimizer_(optimizer),
        folder_(folder),
        progress_(progress),
        queue_(options.detect_anomaly ? nullptr : queue_for(task, options, optimizer)) {
    if (!queue_) gradient_.emplace(task, options.shards);
  }

  TrainResult run() {
    SignalWatch watch;
    ranks().interrupted = [] { return SignalWatch::caught() != 0; };
    require_agreement(task_, options_);
    resume();
    save();
    bool going = !is_over();
    if (going && epoch_ends() && validated_step_ != steps()) going = validate();
    while (going && submitted_ < options_.steps) {
      ++submitted_;
      const StepGradient::Words said = {watch.caught() == SIGINT ? 1. : 0,
                                        watch.caught() == SIGTERM ? 1. : 0,
                                        ranks().alone() ? 0. : watch.take_save()};
      going = advance(static_cast<std::uint32_t>(submitted_), said);
      if (ranks().alone()) heard_[2] = watch.take_save();
      const bool due = checkpoint_due();
      if (going && (caught() != 0 || asked() || due || epoch_ends())) going = settle();
      if (!going || caught() != 0) break;
      if (epoch_ends()) {
        going = validate() && caught() == 0;
      } else if (asked() || due) {
        save();
      }
      if (asked() && folder_.keeps()) progress_.print(fmt::format("saved after step {}", steps()));
      heard_[2] = 0;
    }
    if (caught() != 0 && state_.result.ending != Ending::not_finite) {
      end(Ending::interrupted);
      state_.result.signal = caught();
    }
    save();
    if (best_.kept()) best_.put_back(task_.tensors);
    share(task_.tensors);
    return state_.result;
  }

 private:
  bool end(Ending ending) {
    state_.result.ending = ending;
    return false;
  }

  // The signal that ends training; 0: none. Of several ranks, each learns with the outcome of a
  // step of the signals that any rank caught.
  int caught() const {
    if (ranks().alone()) return SignalWatch::caught();
    return heard_[0] > 0 ? SIGINT : heard_[1] > 0 ? SIGTERM : 0;
  }
  bool asked() const { return heard_[2] > 0; }  // for a checkpoint

  // Number of steps whose outcome is known.
  i64 steps() const { return state_.result.steps; }
  // Both refer to the last step started.
  bool epoch_ends() const {
    return submitted_ > 0 &&
           (submitted_ % options_.epoch_steps == 0 || submitted_ == options_.steps);
  }
  bool checkpoint_due() const {
    return options_.checkpoint_steps > 0 && submitted_ % options_.checkpoint_steps == 0;
  }

  i64 tokens() const { return steps() * task_.targets_per_step; }
  i64 epoch() const { return (steps() - 1) / options_.epoch_steps + 1; }
  i64 epochs() const { return (options_.steps + options_.epoch_steps - 1) / options_.epoch_steps; }

  // Starts the step and handles the outcomes of finished ones; returns false if training ends with
  // one of them.
  bool advance(std::uint32_t number, const StepGradient::Words& said) {
    redraw(task_.buffers, task_.seed, number);
    if (queue_) {
      queue_->submit(number, said);
      return queue_->room() || handle(queue_->take());
    }
    try {
      return handle(computed(number, said));
    } catch (const Anomaly& anomaly) {
      if (!ranks().alone()) throw;  // the others wait for this rank's gradient
      state_.result.steps = number;
      progress_.clear();
      print_stderr("{}", anomaly.what());
      folder_.log({{"kind", "anomaly"},
                   {"step", number},
                   {task_.round, epoch()},
                   {"what", anomaly.what()}});
      return end(Ending::not_finite);
    }
  }

  // Waits for all queued steps and handles them.
  bool settle() {
    while (queue_ && queue_->any()) {
      if (!handle(queue_->take())) return false;
    }
    return true;
  }

  // Waits for the steps still queued when training has ended, which write nothing. The buffers are
  // drawn for the last step that counts.
  void forget_queued() {
    while (queue_ && queue_->any()) queue_->take();
    redraw(task_.buffers, task_.seed, static_cast<std::uint32_t>(submitted_),
           static_cast<std::uint32_t>(steps()));
  }

  Outcome computed(std::uint32_t number, const StepGradient::Words& said) {
    Outcome outcome{.step = number, .rate = options_.learning_rate(number)};
    std::optional<AnomalyWatch> watch;
    if (options_.detect_anomaly) watch.emplace(task_.parameters, number);
    std::vector<Tensor> batch = task_.batch(number);
    for (Tensor& tensor : batch) tensor = tensor.to(device_);
    const auto [loss, heard] = (*gradient_)(batch, {.number = number}, gradient_->saying(said));
    gradient_->wait();
    std::ranges::copy(heard.to_vector<double>(), outcome.heard.begin());
    outcome.loss = loss.loss.value().item();
    outcome.cross_entropy = loss.cross_entropy.item();
    outcome.updated = std::isfinite(outcome.loss);
    if (!outcome.updated) return outcome;
    outcome.norm = optimizer_.step(outcome.rate, options_.clip);
    outcome.updated = std::isfinite(outcome.norm);
    if (task_.carry && outcome.updated) task_.carry(Tensor::full({1}, 1, DType::f64, device_));
    outcome.finite = !outcome.updated || optimizer_.finite();
    return outcome;
  }

  // Returns false if training ends with this step.
  bool handle(const Outcome& outcome) {
    state_.result.steps = outcome.step;
    for (std::size_t i = 0; i < heard_.size(); ++i) heard_[i] += outcome.heard[i];
    loss_ = outcome.loss;
    rate_ = outcome.rate;
    if (!outcome.finite) return take_back(outcome.step);
    if (!outcome.updated) {
      return skip(outcome.step, std::isfinite(outcome.loss) ? "gradient" : "loss");
    }
    state_.failures = 0;
    estimate_.count(steps(), options_.steps, progress_);
    count(outcome.cross_entropy, outcome.norm);
    return true;
  }

  bool take_back(std::uint32_t number) {
    std::string name;
    for (const NamedParameter& parameter : task_.parameters) {
      if (name.empty() && !is_finite(parameter)) name = parameter.name;
    }
    forget_queued();
    optimizer_.take_back();
    progress_.print(fmt::format(
        "step {}: the update made {} not finite and was undone; use a smaller learning rate",
        number, name));
    return end(Ending::not_finite);
  }

  bool skip(std::uint32_t number, const char* what) {
    ++state_.result.skipped;
    progress_.print(fmt::format("step {}: the {} is not finite{}; nothing was updated", number,
                                what, gradient_ ? gradient_->blamed(std::isfinite(loss_)) : ""));
    folder_.log({{"kind", "skipped"}, {"step", number}, {task_.round, epoch()}, {"what", what}});
    if (++state_.failures < TrainOptions::most_failures_in_a_row) return true;
    forget_queued();
    return end(Ending::not_finite);
  }

  // "epoch 3/12  step 250/1000"; for a run that ends inside an epoch "epoch 2.50 of 3  step 10/10".
  std::string place() const {
    if (steps() == options_.steps && steps() % options_.epoch_steps != 0) {
      const double passes =
          static_cast<double>(steps()) / static_cast<double>(options_.epoch_steps);
      std::string shown;
      int digits = 1;
      do {  // two digits, or as many as distinguish it from an integer
        shown = fmt::format("{:.{}f}", passes, ++digits);
      } while (std::fmod(std::stod(shown), 1) == 0);
      return fmt::format("{} {} of {}  step {}/{}", task_.round, shown, epochs(), steps(),
                         options_.steps);
    }
    return fmt::format("{} {}/{}  step {}/{}", task_.round, epoch(), epochs(), steps(),
                       options_.steps);
  }

  // A report is due after every report_steps, after the last step and, until the first report,
  // before each validation.
  bool report_due() const {
    const bool first = steps() < options_.report_steps && steps() % options_.epoch_steps == 0;
    return steps() % options_.report_steps == 0 || steps() == options_.steps || first;
  }

  // Accumulates the figures of the next report, and reports when due.
  void count(double cross_entropy, double norm) {
    for (Measure* sums : {&state_.recent, &state_.round}) {
      sums->loss += loss_;
      sums->cross_entropy += cross_entropy;
    }
    ++state_.recent_steps;
    ++state_.round_steps;
    const bool due = report_due();
    if (!due && !progress_.wants_update()) return;
    const double elapsed = this->elapsed();
    const auto count = static_cast<double>(state_.recent_steps);
    const double loss = state_.recent.loss / count;
    const double score = task_.score.of(state_.recent.cross_entropy / count);
    const double rate = count * static_cast<double>(task_.targets_per_step) /
                        (elapsed - reported_at_ - validating_);
    const double remaining =
        elapsed / static_cast<double>(steps()) * static_cast<double>(options_.steps - steps());
    const std::string line = fmt::format(
        "{}  train {:.4f} {}  {} < {}  {} tokens/s  lr {:.3g}  gradient {:.3g}", place(), score,
        task_.score.unit, duration(elapsed), duration(remaining), short_number(rate), rate_, norm);
    if (!due) return progress_.update(line);
    progress_.report(line);
    folder_.log({{"kind", "train"},
                 {"step", steps()},
                 {task_.round, epoch()},
                 {"tokens", tokens()},
                 {"loss", loss},
                 {task_.score.key, score},
                 {"tokens_per_second", rate},
                 {"learning_rate", rate_},
                 {"gradient_norm", norm},
                 {"elapsed", elapsed},
                 {"remaining", remaining}});
    state_.recent = {0, 0};
    state_.recent_steps = 0;
    reported_at_ = elapsed;
    validating_ = 0;
  }

  bool validate() {
    const Stopwatch watch;
    estimate_.restart();
    validated_ = task_.validate([&](double share) {
      progress_.update(fmt::format("{}  validation {:.0f} %", place(), 100 * share));
    });
    validated_step_ = steps();
    const double criterion = task_.criterion ? task_.criterion(validated_) : validated_.loss;
    const bool better = criterion < state_.least;
    if (better) {
      state_.least = criterion;
      state_.result.best = validated_;
      state_.result.best_epoch = epoch();
      state_.best = checkpoint_name(steps(), true);
      best_.keep(task_.tensors);
    }
    const double score = task_.score.of(validated_.cross_entropy);
    const double elapsed = this->elapsed();
    std::string shown = fmt::format("validation {:.4f} {}", score, task_.score.unit);
    Json line = {{"kind", "validation"}, {"step", steps()},         {task_.round, epoch()},
                 {"tokens", tokens()},   {"loss", validated_.loss}, {task_.score.key, score}};
    if (state_.round_steps > 0) {
      const auto count = static_cast<double>(state_.round_steps);
      const double trained = task_.score.of(state_.round.cross_entropy / count);
      shown = fmt::format("train {:.4f}  {}", trained, shown);
      line["train_loss"] = state_.round.loss / count;
      line[std::string("train_") + task_.score.key] = trained;
    }
    for (const Figure& figure : validated_.figures) {
      shown += fmt::format("  {:.2f} {}", figure.value, figure.unit);
      line[figure.key] = figure.value;
    }
    line.update({{"best", better}, {"elapsed", elapsed}});
    progress_.print(
        fmt::format("{}  {}{}  {}", place(), shown, better ? "  best" : "", duration(elapsed)));
    folder_.log(line);
    state_.round = {0, 0};
    state_.round_steps = 0;
    if (task_.validated) task_.validated(epoch());
    validating_ += watch.seconds();
    save();
    return !is_over();
  }

  // Whether training ends with the validation after the last step.
  bool is_over() {
    if (!ends_with(options_, steps(), validated_step_ == steps(), state_.result.best_epoch)) {
      return false;
    }
    if (steps() < options_.steps) end(Ending::out_of_patience);
    return true;
  }

  // Restores the folder's checkpoint, if there is one to resume. Rank 0 reads it and broadcasts it.
  // The folder changes last: a checkpoint that is refused leaves it as it was.
  void resume() {
    const SavedTraining* const kept = folder_.resumed();
    if (kept != nullptr) check_same_task(*kept, task_, folder_.path());
    const std::string computed_before = kept == nullptr ? "" : kept->computed_by;
    const std::optional<SavedTraining> saved =
        shared(kept == nullptr ? std::optional<SavedTraining>() : *kept);
    if (!saved) return;
    const std::string source = folder_.path() + "/" + name_of(*saved);
    state_ = training_state(*saved, task_.notes, options_.detect_anomaly, source);
    optimizer_.set_failures(state_.failures);
    const std::map<std::string, Tensor> beside = beside_weights();
    if (ranks().leads()) {
      load_tensors(task_.tensors, saved->model.tensors, source);
      // What is carried has the type of the activations, which --precision may have changed.
      load_tensors(beside, in_types_of(task_.carried, saved->state.tensors), source);
      if (!saved->best.empty()) best_.keep(task_.tensors, saved->best_model.tensors);
    }
    share(task_.tensors);
    share(beside);
    for (const NamedTensor& own : task_.carried) take_rows(own.value, beside.at(own.name));
    folder_.go_on();
    submitted_ = steps();
    if (saved->validated) validated_step_ = steps();
    elapsed_before_ = saved->elapsed;
    reported_at_ = saved->elapsed - saved->unreported;
    progress_.print(
        fmt::format("resume after step {} of {}, from {}", steps(), options_.steps, source));
    const std::string now = text_of(computed_by());
    const bool on_cpu = task_.parameters.at(0).variable.value().device() == Device{};
    if (on_cpu && !computed_before.empty() && computed_before != now) {
      print_stderr("warning: {}: was computed by {}, and this run is by {}; the bits may differ",
                   source, computed_before, now);
    }
  }

  void save() {
    SavedTraining saved;
    saved.state.tensors = beside_weights();
    if (!folder_.keeps()) return;
    saved.step = steps();
    saved.validated = validated_step_ == steps();
    saved.model = model();
    saved.state.metadata = to_metadata(state_, task_.notes);
    for (auto& [name, tensor] : saved.state.tensors) tensor = tensor.to(Device{});
    saved.best = state_.best;
    saved.elapsed = elapsed();
    saved.unreported = saved.elapsed - reported_at_ - validating_;
    folder_.save(std::move(saved));
  }

  // The tensors of a checkpoint's state.safetensors. What is carried from step to step is gathered
  // from all ranks: they call this together.
  std::map<std::string, Tensor> beside_weights() const {
    std::map<std::string, Tensor> all = optimizer_.state();
    for (const NamedTensor& tensor : task_.carried) {
      all[tensor.name] = rows_of_all(tensor.value);
    }
    return all;
  }

  double elapsed() const { return elapsed_before_ + clock_.seconds(); }

  Checkpoint model() const {
    Checkpoint saved{tensors_of(task_.tensors), task_.metadata};
    saved.metadata["step"] = std::to_string(steps());
    saved.metadata[task_.round] = std::to_string(epoch());
    if (validated_step_ == steps()) {
      saved.metadata["validation_loss"] = fmt::format("{}", validated_.loss);
      saved.metadata[std::string("validation_") + task_.score.key] =
          fmt::format("{}", task_.score.of(validated_.cross_entropy));
      for (const Figure& figure : validated_.figures) {
        saved.metadata["validation_" + figure.key] = fmt::format("{}", figure.value);
      }
    }
    return saved;
  }

  const Task& task_;
  const TrainOptions& options_;
  Optimizer& optimizer_;
  RunFolder& folder_;
  Progress& progress_;
  const Stopwatch clock_;
  const Device device_ = task_.parameters.at(0).variable.value().device();

  std::unique_ptr<QueuedSteps> queue_;    // null on the CPU, and with detect_anomaly
  std::optional<StepGradient> gradient_;  // of steps that are not queued
  StepGradient::Words heard_{};           // since signals were last heeded
  i64 submitted_ = 0;
  TrainingState state_;
  Measure validated_;                 // the last validation
  i64 validated_step_ = -1;           // the step before it; -1: no validation yet
  Weights best_;                      // weights of the best validation
  double loss_ = 0, rate_ = 0;
  TimeEstimate estimate_;
  // Seconds: of training before this run; time of the last report; spent on validation since then.
  double elapsed_before_ = 0, reported_at_ = 0, validating_ = 0;
};

}  // namespace

std::unique_ptr<QueuedSteps> queue_for(const Task& task, const TrainOptions& options,
                                       Optimizer& optimizer) {
  std::unique_ptr<QueuedSteps> queue;
  const Device device = task.parameters.at(0).variable.value().device();
  dispatch_device(device, [&]<class D>(const D& where) {
    if constexpr (!std::is_same_v<D, Cpu>) queue = queued_steps(where, task, options, optimizer);
  });
  return queue;
}

bool is_over(const SavedTraining& saved, const Task& task, const TrainOptions& options,
             const std::string& source) {
  check_same_task(saved, task, source);
  require(saved.step <= options.steps,
          "{}: is after step {} already; --steps or --epochs ends the run after {}", source,
          saved.step, options.steps);
  const TrainingState state = training_state(saved, nullptr, options.detect_anomaly, source);
  return ends_with(options, saved.step, saved.validated, state.result.best_epoch);
}

TrainResult train(const Task& task, const TrainOptions& options, Optimizer& optimizer,
                  RunFolder& folder, Progress& progress) {
  return Training(task, options, optimizer, folder, progress).run();
}

}  // namespace weft
