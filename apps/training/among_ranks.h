// What the ranks of a training exchange besides gradients. All ranks call each function together;
// on one rank they do nothing and copy nothing.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "apps/training/saved_training.h"
#include "apps/training/train.h"

namespace weft {

// Throws if a rank has other settings, or other data, than rank 0.
void require_agreement(const Task& task, const TrainOptions& options);

// Copies rank 0's values to every rank.
void share(const std::vector<NamedTensor>& tensors);
void share(const std::map<std::string, Tensor>& tensors);
// Rank 0's checkpoint on every rank, without its tensors.
std::optional<SavedTraining> shared(std::optional<SavedTraining> saved);

// Concatenates the rows of all ranks, of which `own` are this rank's, on the CPU; and takes this
// rank's back.
Tensor rows_of_all(const Tensor& own);
void take_rows(const Tensor& own, const Tensor& all);

}  // namespace weft
