// The accuracy of a picture classifier.
#pragma once

#include <functional>
#include <span>

#include "apps/data/augment.h"
#include "apps/training/train.h"
#include "apps/vision/model.h"

namespace weft::vision {

// The number of rows of logits [B, classes] whose label [B] is among the k largest. Ties between
// logits go to the lower class; NaN is never among the k largest.
i64 count_top(const Tensor& logits, const Tensor& labels, i64 k);

// Called occasionally with the fraction done.
using Advance = std::function<void(double)>;

// The mean loss over these pictures, and the figures "top_1" and "top_5" in percent.
Measure measure(const Model& model, const Pictures& pictures, std::span<const i64> which,
                const Advance& advance);
// The figure with this key; throws if there is none.
double percent(const Measure& measure, const std::string& key);

// The split of a model's pictures by its settings.
struct Parts {
  const PictureSet& set;
  std::vector<i64> train, validation, test;
};
// Throws if validation leaves fewer training pictures than a batch.
Parts divide(const PictureSet& set, const Settings& settings);

}  // namespace weft::vision
