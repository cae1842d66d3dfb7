// Loss and gradient of a training step, however it runs: at once, queued or captured, on one
// process or on several.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "apps/training/train.h"
#include "nn/gradient_sum.h"

namespace weft {

class StepGradient {
 public:
  // The task must outlive this object.
  StepGradient(const Task& task, i64 shards);

  // Numbers that are summed over the ranks with every step, such as signals that were caught.
  static constexpr i64 words = 3;
  using Words = std::array<double, words>;

  struct Result {
    Task::Loss loss;  // the mean over the whole batch
    Tensor heard;     // [words], the sums
  };
  // Stores the gradient of the mean loss in the parameters, in place of what they had. `batch` and
  // `said` [words] f64 are this rank's, on the device of the parameters.
  Result operator()(const std::vector<Tensor>& batch, const Task::Step& step, const Tensor& said);
  // Words to say, and nothing to say, on that device.
  Tensor saying(const Words& own = {}) const;

  // On several ranks with devices: waits until done() is true, of work queued there. Throws if one
  // of the ranks does not take part any more. Elsewhere returns.
  void wait_until(const std::function<bool()>& done);
  void wait();  // for all work queued there

  // The cost of the ranks' exchanges so far.
  GradientSum::Traffic traffic() const { return sum_ ? sum_->traffic() : GradientSum::Traffic{}; }

  // The rank that a value that is not finite came from, and its parameter: ", on rank 1, in
  // blocks.0.weight". Empty on one rank. All ranks call this together.
  std::string blamed(bool loss_is_finite) const;

 private:
  const Task& task_;
  Device device_;
  std::optional<GradientSum> sum_;  // none for a batch in one piece
};

}  // namespace weft
