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
  // The task stays where it is meanwhile.
  StepGradient(const Task& task, i64 shards);

  // Leaves the gradient of the mean loss over the whole batch in the parameters, which had none,
  // and returns that loss. `batch` is this rank's, on the device of the parameters.
  Task::Loss operator()(const std::vector<Tensor>& batch, const Task::Step& step);

  // Numbers that the ranks tell each other with every step, such as of signals that came: what this
  // one says, and the sums.
  static constexpr std::size_t words = 3;
  std::array<double, words> said{}, heard{};

  // What the ranks' exchanges took so far.
  GradientSum::Traffic traffic() const { return sum_ ? sum_->traffic() : GradientSum::Traffic{}; }

  // Which rank a value that is not finite came from, and where: ", on rank 1, in blocks.0.weight".
  // Empty on one rank. All ranks ask together.
  std::string blamed(bool loss_is_finite) const;

 private:
  const Task& task_;
  bool own_loss_finite_ = true;     // that of every shard of this rank
  std::optional<GradientSum> sum_;  // none for a batch in one piece
};

}  // namespace weft
