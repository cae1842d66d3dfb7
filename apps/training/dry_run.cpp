#include "apps/training/dry_run.h"

#include <fstream>
#include <functional>
#include <utility>

#include "apps/command_line/commit.h"
#include "apps/command_line/configuration.h"
#include "apps/training/trial_step.h"
#include "nn/checkpoint.h"
#include "runtime/allocator.h"
#include "runtime/communicator.h"

namespace weft {
namespace {

struct StepCost {
  i64 parameters = 0;
  // Bytes of the weights, their gradients and the optimizer's state, computed from shapes.
  std::size_t weights = 0, gradients = 0, optimizer = 0;
  // Bytes on the device, measured: the activations saved for backward, and the peak during a step,
  // which includes all of the above and the training's copies of weights.
  std::size_t activations = 0, peak = 0;
  // Bytes of host memory, measured: the process at its start; the growth of its peak size up to the
  // first step (data, weights, their copies), by two steps, by a validation batch and by a
  // checkpoint; and the peak size itself.
  std::size_t program = 0, data = 0, steps = 0, validation = 0, checkpoint = 0, process = 0;
  double operations = 0;  // of the matrix products, computed: Task::operations
  bool operations_at_most = false;
  double seconds = 0;  // per step, measured: mean of a few steps after the first
};

// The resident size of this process in bytes: "VmRSS" now, "VmHWM" at its peak.
std::size_t process_memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return 1024 * std::stoull(line.substr(field.size() + 1));
  }
  fail("dry run: /proc/self/status has no {}, the size of this process", field);
}

const std::size_t at_start = process_memory("VmRSS");

// How much the peak size of this process grew since the last call.
class Growth {
 public:
  std::size_t take() {
    const std::size_t now = process_memory("VmHWM");
    return now - std::exchange(reached_, now);
  }
  std::size_t reached() const { return reached_; }

 private:
  std::size_t reached_ = at_start;
};

// Runs the first batch of a validation, which may have thousands, and the batches of other shapes.
// Several ranks run all batches: they end a validation together.
void validate_a_little(const Task& task) {
  struct Enough {};
  try {
    task.validate([](double) {
      if (ranks().alone()) throw Enough{};
    });
  } catch (const Enough&) {
  }
  if (task.odd_batches) task.odd_batches();
}

// Runs two steps without a graph (the second one runs with the allocations of the first), a
// validation batch, and a few steps for the time. All of them change the parameters.
StepCost cost_of_step(const Task& task, const TrainOptions& options, Optimizer& optimizer) {
  const Device device = task.parameters.at(0).variable.value().device();
  CachingAllocator& memory = allocator(device);
  StepCost cost{.program = at_start,
                .operations = task.operations,
                .operations_at_most = task.operations_at_most};
  Task measured = task;
  measured.loss = [&](const std::vector<Tensor>& batch, const Task::Step& step) {
    const std::size_t before = memory.counts().live;
    Task::Loss loss = task.loss(batch, step);
    cost.activations = memory.counts().live - before;
    return loss;
  };
  TrialStep step(measured, options, optimizer);
  Growth growth;
  cost.data = growth.take();
  memory.reset_peak();
  step();
  step([&](const std::string& part) {
    if (part != "gradient") return;
    for (const NamedParameter& parameter : task.parameters) {
      const Tensor own = parameter.variable.gradient();
      if (own.defined()) cost.gradients += own.byte_count();
    }
  });
  cost.peak = memory.counts().peak;
  cost.steps = growth.take();
  validate_a_little(task);
  cost.validation = growth.take();
  const Checkpoint model{tensors_of(task.tensors), task.metadata};
  std::map<std::string, Tensor> state = optimizer.state();
  for (auto& [name, tensor] : state) tensor = tensor.to(Device{});
  cost.checkpoint = growth.take();
  cost.process = growth.reached();  // a new reading could exceed the sum of the parts by pages
  for (const NamedParameter& parameter : task.parameters) {
    cost.parameters += parameter.variable.value().count();
    cost.weights += parameter.variable.value().byte_count();
  }
  for (const auto& [name, tensor] : optimizer.state()) cost.optimizer += tensor.byte_count();
  cost.seconds = mean_time([&] { step(); }).seconds;
  return cost;
}

}  // namespace

void print_dry_run(const Task& task, const TrainOptions& options, Optimizer& optimizer, bool json) {
  const StepCost cost = cost_of_step(task, options, optimizer);
  const double epochs =
      static_cast<double>(options.steps) / static_cast<double>(options.epoch_steps);
  if (json) {
    return print_json(Json{{"parameters", cost.parameters},
                           {"weight_bytes", cost.weights},
                           {"gradient_bytes", cost.gradients},
                           {"optimizer_bytes", cost.optimizer},
                           {"activation_bytes", cost.activations},
                           {"peak_bytes", cost.peak},
                           {"process_bytes",
                            {{"program", cost.program},
                             {"data", cost.data},
                             {"steps", cost.steps},
                             {"validation", cost.validation},
                             {"checkpoint", cost.checkpoint},
                             {"peak", cost.process}}},
                           {"operations", static_cast<i64>(cost.operations)},
                           {"operations_at_most", cost.operations_at_most},
                           {"step_seconds", cost.seconds},
                           {"targets", task.targets_per_step},
                           {"steps", options.steps},
                           {"epoch_steps", options.epoch_steps},
                           {"commit", commit}});
  }
  const auto line = [](const char* what, double value, const std::string& unit) {
    fmt::print("{:<12}{:>18} {}\n", what, grouped(static_cast<i64>(value)), unit);
  };
  const auto bytes = [&](const char* what, std::size_t count, const std::string& note = "") {
    fmt::print("{:<12}{:>18.2f} MiB{}\n", what, static_cast<double>(count) / (1 << 20), note);
  };
  line("parameters", static_cast<double>(cost.parameters), "");
  bytes("weights", cost.weights);
  bytes("gradients", cost.gradients);
  bytes("optimizer", cost.optimizer);
  bytes("activations", cost.activations, " saved for the backward pass (measured)");
  bytes("peak", cost.peak, " at most in a step, including all above (measured)");
  bytes("process", cost.process, " at most (measured):");
  bytes("  program", cost.program, " when it began");
  bytes("  data", cost.data, " with the weights and their copies");
  bytes("  steps", cost.steps, "");
  bytes("  validation", cost.validation, "");
  bytes("  checkpoint", cost.checkpoint, "");
  line("arithmetic", cost.operations,
       fmt::format("operations per step{}, of matrix products (counted)",
                   cost.operations_at_most ? " at most, which learnt spans decide" : ""));
  line("steps", static_cast<double>(options.steps),
       fmt::format("in {:g} {}s of {}", epochs, task.round, grouped(options.epoch_steps)));
  fmt::print("{:<12}{:>18} for these steps, of {:.3g} s (measured), plus validations\n", "time",
             rough_duration(cost.seconds * static_cast<double>(options.steps)), cost.seconds);
}

}  // namespace weft
