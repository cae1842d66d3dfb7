// What the ranks of a training tell each other beside gradients. All of them call each function
// together; on one rank nothing is done, and nothing is copied.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "apps/training/saved_training.h"
#include "apps/training/train.h"

namespace weft {

// Throws where one trains with other settings, or on other data, than the first.
void require_agreement(const Task& task, const TrainOptions& options);

// The first rank's values, on every rank.
void share(const std::vector<NamedTensor>& tensors);
void share(const std::map<std::string, Tensor>& tensors);
// What the first rank's checkpoint says, but for the model and the tensors.
std::optional<SavedTraining> shared(std::optional<SavedTraining> saved);

// The rows of all ranks, one behind the other, where `own` are those of this one; and back.
Tensor rows_of_all(const Tensor& own);
void take_rows(const Tensor& own, const Tensor& all);

}  // namespace weft
