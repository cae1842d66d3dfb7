// Loss and gradient of a training step, however it runs: at once, queued or captured, on one
// process or on several.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "apps/training/train.h"
#include "nn/gradient_sum.h"

namespace weft {

class StepGradient {
 public:
  // The task must outlive this object.
  StepGradient(const Task& task, i64 shards);

  // Stores the gradient of the mean loss over the whole batch in the parameters, in place of what
  // they had, and returns that loss. `batch` is this rank's, on the device of the parameters.
  Task::Loss operator()(const std::vector<Tensor>& batch, const Task::Step& step);

  // Numbers that are summed over the ranks with every step, such as signals that were caught: those
  // of this rank, and the sums.
  static constexpr std::size_t words = 3;
  std::array<double, words> said{}, heard{};

  // The cost of the ranks' exchanges so far.
  GradientSum::Traffic traffic() const { return sum_ ? sum_->traffic() : GradientSum::Traffic{}; }

  // The rank that a value that is not finite came from, and its parameter: ", on rank 1, in
  // blocks.0.weight". Empty on one rank. All ranks call this together.
  std::string blamed(bool loss_is_finite) const;

 private:
  const Task& task_;
  bool own_loss_finite_ = true;     // that of every shard of this rank
  std::optional<GradientSum> sum_;  // none for a batch in one piece
};

}  // namespace weft
