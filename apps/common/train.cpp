#include "apps/common/train.h"

#include <cmath>
#include <csignal>

#include <nlohmann/json.hpp>

#include "apps/common/queued_steps.h"
#include "autograd/tape.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

constexpr int most_failures_in_a_row = 3;

volatile std::sig_atomic_t caught_signal = 0;

// Remembers the first SIGINT or SIGTERM while it lives; the second meets what was there before.
class SignalWatch {
 public:
  SignalWatch() {
    caught_signal = 0;
    struct sigaction action {};
    action.sa_handler = [](int signal) { caught_signal = signal; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (std::size_t i = 0; i < 2; ++i) ::sigaction(signals[i], &action, &before_[i]);
  }
  ~SignalWatch() {
    for (std::size_t i = 0; i < 2; ++i) ::sigaction(signals[i], &before_[i], nullptr);
  }

 private:
  static constexpr int signals[] = {SIGINT, SIGTERM};
  struct sigaction before_[2];
};

// A copy of all weights, its memory used again for the next one.
class Weights {
 public:
  bool kept() const { return !tensors_.empty(); }

  void keep(const std::vector<NamedParameter>& parameters) {
    tensors_.resize(parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& value = parameters[i].variable.value();
      if (!tensors_[i].defined()) tensors_[i] = Tensor::empty(value.shape(), value.dtype());
      tensors_[i].copy_from(value);
    }
  }
  void put_back(const std::vector<NamedParameter>& parameters) const {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].variable.value().copy_from(tensors_[i]);
    }
  }

 private:
  std::vector<Tensor> tensors_;
};

class Training {
 public:
  Training(const Task& task, const TrainOptions& options, Optimizer& optimizer, RunFolder& folder,
           Progress& progress)
      : task_(task),
        options_(options),
        optimizer_(optimizer),
        folder_(folder),
        progress_(progress),
        queue_(queue_for(task, options, optimizer)) {}

  TrainResult run() {
    const SignalWatch watch;
    bool going = true;
    while (going && submitted_ < options_.steps) {
      ++submitted_;
      going = advance(static_cast<std::uint32_t>(submitted_));
      const bool epoch_ends =
          submitted_ % options_.epoch_steps == 0 || submitted_ == options_.steps;
      if (going && (epoch_ends || caught_signal != 0)) going = settle();
      if (going && caught_signal != 0) {
        going = end(Ending::interrupted);
        result_.signal = caught_signal;
      }
      if (going && epoch_ends) going = validate();
    }
    if (validated_step_ != result_.steps) folder_.save_last(checkpoint());
    if (best_.kept()) best_.put_back(task_.parameters);
    return result_;
  }

 private:
  bool end(Ending ending) {
    result_.ending = ending;
    return false;
  }

  std::int64_t epoch() const { return (result_.steps - 1) / options_.epoch_steps + 1; }
  std::int64_t epochs() const {
    return (options_.steps + options_.epoch_steps - 1) / options_.epoch_steps;
  }

  // Starts the step and does what is to be done about those that are over; false where the training
  // ends with one of them.
  bool advance(std::uint32_t number) {
    if (!queue_) return handle(computed(number));
    queue_->submit(number);
    return queue_->room() || handle(queue_->take());
  }

  // Waits for all steps that are under way.
  bool settle() {
    while (queue_ && queue_->any()) {
      if (!handle(queue_->take())) return false;
    }
    return true;
  }

  // Waits for the steps that are under way when training has ended.
  void forget_queued() {
    while (queue_ && queue_->any()) queue_->take();
  }

  Outcome computed(std::uint32_t number) {
    Outcome outcome{.step = number, .rate = options_.learning_rate(number)};
    for (const NamedParameter& parameter : task_.parameters) parameter.variable.place()->clear();
    before_.keep(task_.parameters);
    Tape tape;
    const Task::Loss loss = task_.loss(task_.batch(number), {.number = number});
    outcome.loss = loss.loss.value().item();
    outcome.cross_entropy = loss.cross_entropy.item();
    outcome.updated = std::isfinite(outcome.loss);
    if (!outcome.updated) return outcome;
    tape.backward(loss.loss);
    outcome.norm = optimizer_.step(outcome.rate, options_.clip);
    outcome.updated = std::isfinite(outcome.norm);
    for (const NamedParameter& parameter : task_.parameters) {
      outcome.finite = outcome.finite && (!outcome.updated || all_finite(parameter.variable.value()));
    }
    return outcome;
  }

  // False where the training ends with this step.
  bool handle(const Outcome& outcome) {
    result_.steps = outcome.step;
    loss_ = outcome.loss;
    rate_ = outcome.rate;
    if (!outcome.finite) return take_back(outcome.step);
    if (!outcome.updated) {
      return skip(outcome.step, std::isfinite(outcome.loss) ? "gradient" : "loss");
    }
    failures_ = 0;
    count(outcome.cross_entropy, outcome.norm);
    return true;
  }

  bool take_back(std::uint32_t number) {
    std::string name;
    for (const NamedParameter& parameter : task_.parameters) {
      const bool finite = all_finite(parameter.variable.value().to(Device{}));
      if (name.empty() && !finite) name = parameter.name;
    }
    forget_queued();
    queue_ ? optimizer_.take_back() : before_.put_back(task_.parameters);
    progress_.print(fmt::format("step {}: the update made {} not finite and was taken back; use a "
                                "smaller learning rate", number, name));
    return end(Ending::not_finite);
  }

  bool skip(std::uint32_t number, const char* what) {
    ++result_.skipped;
    progress_.print(
        fmt::format("step {}: the {} is not finite; nothing was updated", number, what));
    folder_.log({{"kind", "skipped"}, {"step", number}, {"epoch", epoch()}, {"what", what}});
    if (++failures_ < most_failures_in_a_row) return true;
    forget_queued();
    return end(Ending::not_finite);
  }

  // Gathers what the next report says, and gives it when it is due.
  void count(double cross_entropy, double norm) {
    recent_.loss += loss_;
    recent_.cross_entropy += cross_entropy;
    ++recent_steps_;
    const bool due = result_.steps % options_.report_steps == 0;
    if (!due && !progress_.wants_update()) return;
    const double elapsed = clock_.seconds();
    const auto steps = static_cast<double>(recent_steps_);
    const double loss = recent_.loss / steps;
    const double score = task_.score.of(recent_.cross_entropy / steps);
    const double rate = steps * static_cast<double>(task_.targets_per_step) /
                        (elapsed - reported_at_ - validating_);
    const double remaining = elapsed / static_cast<double>(result_.steps) *
                             static_cast<double>(options_.steps - result_.steps);
    const std::string line = fmt::format(
        "epoch {}/{}  step {}/{}  {:.4f} {}  {} < {}  {} tokens/s  loss {:.4f}  lr {:.3g}  "
        "gradient {:.3g}",
        epoch(), epochs(), result_.steps, options_.steps, score, task_.score.unit,
        duration(elapsed), duration(remaining), short_number(rate), loss, rate_, norm);
    if (!due) return progress_.update(line);
    progress_.report(line);
    folder_.log({{"kind", "train"}, {"step", result_.steps}, {"epoch", epoch()}, {"loss", loss},
                 {task_.score.key, score}, {"tokens_per_second", rate}, {"learning_rate", rate_},
                 {"gradient_norm", norm}, {"elapsed", elapsed}, {"remaining", remaining}});
    recent_ = {0, 0};
    recent_steps_ = 0;
    reported_at_ = elapsed;
    validating_ = 0;
  }

  bool validate() {
    const Stopwatch watch;
    validated_ = task_.validate([&](double share) {
      progress_.update(
          fmt::format("epoch {}/{}  validation {:.0f} %", epoch(), epochs(), 100 * share));
    });
    validated_step_ = result_.steps;
    const double criterion = task_.criterion ? task_.criterion(validated_) : validated_.loss;
    const bool better = criterion < least_;
    if (better) {
      least_ = criterion;
      result_.best = validated_;
      result_.best_epoch = epoch();
      best_.keep(task_.parameters);
      folder_.save_best(checkpoint());
    }
    folder_.save_last(checkpoint());
    const double score = task_.score.of(validated_.cross_entropy);
    const double elapsed = clock_.seconds();
    std::string shown = fmt::format("{:.4f} {}", score, task_.score.unit);
    nlohmann::ordered_json line = {{"kind", "validation"},
                                   {"step", result_.steps},
                                   {"epoch", epoch()},
                                   {"loss", validated_.loss},
                                   {task_.score.key, score}};
    for (const Figure& figure : validated_.figures) {
      shown += fmt::format("  {:.2f} {}", figure.value, figure.unit);
      line[figure.key] = figure.value;
    }
    line.update({{"best", better}, {"elapsed", elapsed}});
    progress_.print(fmt::format("epoch {}/{}  step {}  validation {}  loss {:.4f}{}  {}", epoch(),
                                epochs(), result_.steps, shown, validated_.loss,
                                better ? "  best" : "", duration(elapsed)));
    folder_.log(line);
    if (task_.validated) task_.validated(epoch());
    validating_ += watch.seconds();
    const std::int64_t waited = epoch() - result_.best_epoch;
    const bool patient = options_.patience == 0 || waited < options_.patience;
    return patient || result_.steps == options_.steps || end(Ending::out_of_patience);
  }

  Checkpoint checkpoint() const {
    Checkpoint saved{tensors_of(task_.parameters), task_.metadata};
    saved.metadata["step"] = std::to_string(result_.steps);
    saved.metadata["epoch"] = std::to_string(epoch());
    if (validated_step_ == result_.steps) {
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

  std::unique_ptr<QueuedSteps> queue_;  // null on the CPU
  std::int64_t submitted_ = 0;
  TrainResult result_;
  Measure validated_;                // the last validation
  double least_ = std::numeric_limits<double>::infinity();  // of the criterion
  std::int64_t validated_step_ = 0;  // and the step that it followed
  Weights before_, best_;            // before this update, and of the best validation
  double loss_ = 0, rate_ = 0;
  int failures_ = 0;                 // steps in a row that were not finite
  Measure recent_{0, 0};             // sums since the last report
  std::int64_t recent_steps_ = 0;
  double reported_at_ = 0, validating_ = 0;  // seconds: when, and spent on validation since
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

TrainResult train(const Task& task, const TrainOptions& options, Optimizer& optimizer,
                  RunFolder& folder, Progress& progress) {
  return Training(task, options, optimizer, folder, progress).run();
}

}  // namespace weft
