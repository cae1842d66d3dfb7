#include "apps/training/step_gradient.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"

namespace weft {
namespace {

constexpr i64 losses = 2;  // the loss and its cross-entropy

}  // namespace

StepGradient::StepGradient(const Task& task, i64 shards) : task_(task) {
  if (shards == 1 && ranks().alone()) return;
  sum_.emplace(task.parameters, shards, losses + static_cast<i64>(words), ranks());
}

Task::Loss StepGradient::operator()(const std::vector<Tensor>& batch, const Task::Step& step) {
  for (const NamedParameter& parameter : task_.parameters) parameter.variable.place()->clear();
  if (!sum_) {
    heard = said;
    Tape tape;
    Task::Loss loss = task_.loss(batch, step);
    tape.backward(loss.loss);
    return loss;
  }
  const Device device = task_.parameters.at(0).variable.value().device();
  own_loss_finite_ = true;
  for (i64 part = 0; part < sum_->count(); ++part) {
    Task::Step own = step;
    own.part = part, own.parts = sum_->count();
    std::vector<Tensor> rows;
    for (const Tensor& tensor : batch) {
      rows.push_back(tensor.count() == 1 ? tensor : own.rows_of(tensor));
    }
    own.first_example = (sum_->first() + part) * rows.at(0).size(0);
    Tape tape;
    const Task::Loss loss = task_.loss(rows, own);
    const Tensor numbers = Tensor::zeros({losses + static_cast<i64>(words)}, DType::f64, device);
    numbers.slice(0, 0, 1).copy_from(loss.loss.value().reshape({1}));
    numbers.slice(0, 1, 2).copy_from(loss.cross_entropy.reshape({1}));
    if (device == Device{}) {
      own_loss_finite_ = own_loss_finite_ && std::isfinite(numbers.data<double>()[0]);
      if (part == 0) std::ranges::copy(said, numbers.data<double>() + losses);
    }
    sum_->add(tape, loss.loss, numbers);
  }
  const Tensor sums = sum_->finish();
  if (device == Device{}) std::copy_n(sums.data<double>() + losses, words, heard.begin());
  const auto shards = static_cast<double>(sum_->count() * ranks().size());
  const Tensor means =
      mul(sums.slice(0, 0, losses), Tensor::full({losses}, 1 / shards, DType::f64, device)).value();
  return {means.slice(0, 0, 1), means.slice(0, 1, 2)};
}

std::string StepGradient::blamed(bool loss_is_finite) const {
  if (ranks().alone() || !sum_) return "";
  std::string own;
  if (!loss_is_finite) {
    if (!own_loss_finite_) own = "on rank";
  } else if (const std::vector<std::string> names = sum_->not_finite(); !names.empty()) {
    own = names.back();
  }
  const std::vector<std::string> all = ranks().gather(own);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!all[r].empty()) {
      return fmt::format(", on rank {}{}", r, loss_is_finite ? ", in " + all[r] : "");
    }
  }
  return "";
}

}  // namespace weft
