#include "apps/training/profile.h"

#include <algorithm>

#include "apps/command_line/commit.h"
#include "apps/command_line/configuration.h"
#include "apps/command_line/device_option.h"
#include "apps/training/trial_step.h"
#include "autograd/observer.h"

namespace weft {
namespace {

struct OpCost {
  std::string op;
  i64 calls = 0;
  double forward = 0, backward = 0;  // seconds
  double result_bytes = 0;           // of what forward made and what is no view of an input

  double seconds() const { return forward + backward; }
};

// Charges the time since the event before to each event: to the op whose forward or backward ended,
// or to the part of the step that did.
class StepProfile final : public Observer {
 public:
  explicit StepProfile(Device device) : device_(device) {}

  void made(const char* op, std::span<const Variable> inputs,
            std::span<const Tensor> values) override {
    OpCost& cost = of(op);
    ++cost.calls;
    cost.forward += lap();
    for (const Tensor& value : values) {
      const auto views = [&](const Variable& input) {
        return input.defined() && value.same_storage(input.value());
      };
      if (std::ranges::any_of(inputs, views)) continue;
      cost.result_bytes += static_cast<double>(value.byte_count());
    }
  }
  void gathered(const char* op, std::size_t, const Gradient&) override { of(op).backward += lap(); }
  // What follows the last op of the gradient belongs to no op: freeing the tape, adding shards.
  void ended(const std::string& part) {
    (part == "batch" ? batch : part == "optimizer" ? optimizer : other) += lap();
  }
  void start() { lap(); }

  double batch = 0, optimizer = 0, other = 0;  // seconds
  std::vector<OpCost> ops;

 private:
  OpCost& of(const char* op) {
    const auto found =
        std::ranges::find_if(ops, [&](const OpCost& known) { return known.op == op; });
    return found != ops.end() ? *found : ops.emplace_back(OpCost{.op = op});
  }
  double lap() {
    wait_for(device_);
    const double now = clock_.seconds();
    return now - std::exchange(last_, now);
  }

  Device device_;
  Stopwatch clock_;
  double last_ = 0;
};

}  // namespace

void print_profile(const Task& task, const TrainOptions& options, Optimizer& optimizer, bool json) {
  TrialStep step(task, options, optimizer);
  step();
  step();
  const MeanTime undisturbed = mean_time([&] { step(); });
  StepProfile profile(step.device());
  const MeanTime watched = mean_time([&] {
    profile.start();
    step([&](const char* part) { profile.ended(part); });
  });
  std::ranges::stable_sort(profile.ops, std::greater<>(), &OpCost::seconds);
  const double steps = watched.steps;
  const auto ms = [&](double seconds) { return 1e3 * seconds / steps; };
  if (json) {
    Json ops = Json::array();
    for (const OpCost& cost : profile.ops) {
      ops.push_back({{"op", cost.op},
                     {"calls", static_cast<double>(cost.calls) / steps},
                     {"forward_ms", ms(cost.forward)},
                     {"backward_ms", ms(cost.backward)},
                     {"result_bytes", cost.result_bytes / steps}});
    }
    return print_json(Json{{"ops", ops},
                           {"batch_ms", ms(profile.batch)},
                           {"optimizer_ms", ms(profile.optimizer)},
                           {"other_ms", ms(profile.other)},
                           {"step_ms", 1e3 * watched.seconds},
                           {"undisturbed_step_ms", 1e3 * undisturbed.seconds},
                           {"steps", watched.steps},
                           {"commit", commit}});
  }
  std::size_t width = 10;
  for (const OpCost& cost : profile.ops) width = std::max(width, cost.op.size());
  const auto share = [&](double seconds) { return 100 * seconds / steps / watched.seconds; };
  fmt::print("{:<{}}{:>8}{:>13}{:>14}{:>9}{:>14}\n", "op", width, "calls", "forward, ms",
             "backward, ms", "share", "results, MiB");
  for (const OpCost& cost : profile.ops) {
    fmt::print("{:<{}}{:>8g}{:>13.3f}{:>14.3f}{:>7.1f} %{:>14.2f}\n", cost.op, width,
               static_cast<double>(cost.calls) / steps, ms(cost.forward), ms(cost.backward),
               share(cost.seconds()), cost.result_bytes / steps / (1 << 20));
  }
  const auto part = [&](const char* name, double seconds) {
    fmt::print("{:<{}}{:>8}{:>13.3f}{:>14}{:>7.1f} %\n", name, width, "", ms(seconds), "",
               share(seconds));
  };
  part("batch", profile.batch);
  part("optimizer", profile.optimizer);
  part("other", profile.other);
  fmt::print("{:<{}}{:>21.3f} ms, the mean of {}; {:.3f} ms when ops are not watched\n", "step",
             width, 1e3 * watched.seconds, watched.steps, 1e3 * undisturbed.seconds);
}

}  // namespace weft
