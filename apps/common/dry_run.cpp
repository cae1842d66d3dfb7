#include "apps/common/dry_run.h"

#include "apps/common/configuration.h"
#include "apps/common/weights.h"
#include "autograd/tape.h"
#include "runtime/allocator.h"

namespace weft {
namespace {

std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype());
}

}  // namespace

StepCost cost_of_step(const Task& task, const TrainOptions& options, Optimizer& optimizer) {
  const Device device = task.parameters.at(0).variable.value().device();
  CachingAllocator& memory = allocator(device);
  StepCost cost{.operations = task.operations};
  Weights before_update, best;  // which a training holds besides
  before_update.keep(task.parameters);
  best.keep(task.parameters);
  memory.reset_peak();
  {
    std::vector<Tensor> batch = task.batch(1);
    for (Tensor& tensor : batch) tensor = tensor.to(device);
    const std::size_t before = memory.counts().live;
    Tape tape;
    const Task::Loss loss = task.loss(batch, {.number = 1});
    cost.activations = memory.counts().live - before;
    tape.backward(loss.loss);
    optimizer.step(options.learning_rate(1), options.clip);
  }
  cost.peak = memory.counts().peak;
  for (const NamedParameter& parameter : task.parameters) {
    cost.parameters += parameter.variable.value().count();
    cost.weights += bytes_of(parameter.variable.value());
    const Tensor gradient = parameter.variable.gradient();
    if (gradient.defined()) cost.gradients += bytes_of(gradient);
  }
  for (const auto& [name, tensor] : optimizer.state()) cost.optimizer += bytes_of(tensor);
  return cost;
}

void print_dry_run(const Task& task, const TrainOptions& options, Optimizer& optimizer, bool json) {
  const StepCost cost = cost_of_step(task, options, optimizer);
  const double epochs =
      static_cast<double>(options.steps) / static_cast<double>(options.epoch_steps);
  if (json) {
    return print_json({{"parameters", cost.parameters},
                       {"weight_bytes", cost.weights},
                       {"gradient_bytes", cost.gradients},
                       {"optimizer_bytes", cost.optimizer},
                       {"activation_bytes", cost.activations},
                       {"peak_bytes", cost.peak},
                       {"operations", static_cast<std::int64_t>(cost.operations)},
                       {"targets", task.targets_per_step},
                       {"steps", options.steps},
                       {"epoch_steps", options.epoch_steps}});
  }
  const auto line = [](const char* what, double value, const std::string& unit) {
    fmt::print("{:<12}{:>18} {}\n", what, grouped(static_cast<std::int64_t>(value)), unit);
  };
  const auto bytes = [&](const char* what, std::size_t count, const std::string& note = "") {
    line(what, static_cast<double>(count), "bytes" + note);
  };
  line("parameters", static_cast<double>(cost.parameters), "");
  bytes("weights", cost.weights);
  bytes("gradients", cost.gradients);
  bytes("optimizer", cost.optimizer);
  bytes("activations", cost.activations, " kept for the backward pass (measured)");
  bytes("peak", cost.peak, " at most in a step, all of these included (measured)");
  line("arithmetic", cost.operations, "operations a step, those of its products (counted)");
  line("steps", static_cast<double>(options.steps),
       fmt::format("in {:g} epochs of {}", epochs, grouped(options.epoch_steps)));
}

}  // namespace weft
