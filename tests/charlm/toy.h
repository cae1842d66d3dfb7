// A training of two numbers, whose every step is known.
#pragma once

#include <functional>
#include <vector>

#include "apps/training/train.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "tests/cuda_there.h"

namespace weft {

// Where steps run: on the CPU; and on a CUDA device, if there is one, directly and as replays.
struct Way {
  Device device;
  bool graph = false;
};
inline std::vector<Way> ways() {
  constexpr Device cuda{DeviceType::cuda, 0};
  if (!cuda_is_there()) return {{}};
  return {{}, {cuda, false}, {cuda, true}};
}

// Two numbers that converge to zero: the loss is Σ w² / 2 times a factor that a test chooses, and
// an addition of 0 whose gradient is `bend(step)` · 1e30 · w.
struct Toy {
  Variable weights;
  std::function<double(std::uint32_t)> factor = [](std::uint32_t) { return 1.0; };
  std::function<double(std::uint32_t)> bend = [](std::uint32_t) { return 0.0; };
  std::vector<double> validation = {};  // the losses of the validations to come; then Σ w²
  Task task;
  TrainOptions options;
  std::size_t validations = 0;

  explicit Toy(const Way& way)
      : weights(Variable::leaf(Tensor::from(std::vector<float>{3, -2}, {2}).to(way.device))) {
    options.graph = way.graph;
    task.parameters = {{"weights", weights, {}}};
    task.tensors = {{"weights", weights.value()}};
    task.batch = [this](std::uint32_t step) {
      return std::vector{Tensor::full({}, factor(step), DType::f32),
                         Tensor::full({}, bend(step), DType::f32)};
    };
    task.loss = [this](const std::vector<Tensor>& batch, const Task::Step&) {
      const Variable half = scale(sum(mul(weights, weights)), 0.5);
      const Variable zero = add(half, scale(half.detached(), -1));
      const Variable loss = add(mul(half, batch[0]), mul(scale(zero, 1e30), batch[1]));
      return Task::Loss{loss, loss.value()};
    };
    task.validate = [this](const std::function<void(double)>&) {
      double loss = 0;
      for (const float w : weights.value().to_vector<float>()) loss += double(w) * w;
      if (validations < validation.size()) loss = validation[validations];
      ++validations;
      return Measure{loss, loss};
    };
    task.score = {"score", "points", [](double x) { return x; }};
    task.metadata = {{"kept", "text"}};
    options.steps = 6;
    options.epoch_steps = 2;
    options.report_steps = 1;
    options.learning_rate = [](i64) { return 0.1; };
  }

  TrainResult run(RunFolder& folder, const std::string& optimizer = "sgd") {
    const auto made = make_optimizer(optimizer, task.parameters);
    Progress progress(true);
    return train(task, options, *made, folder, progress);
  }
  float weight() const { return weights.value().to_vector<float>()[0]; }
};

}  // namespace weft
