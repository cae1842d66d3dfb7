// The accuracy of a picture classifier.
#pragma once

#include <span>

#include "apps/data/augment.h"
#include "apps/training/train.h"
#include "apps/vision/model.h"

namespace weft::vision {

// The mean loss over these pictures, and the figures "top_1" and "top_5" in percent.
Measure measure(const Model& model, const Pictures& pictures, std::span<const i64> which,
                const Advance& advance);

// The split of a model's pictures by its settings.
struct Parts {
  const PictureSet& set;
  std::vector<i64> train, validation, test;
};
// Throws if validation leaves fewer training pictures than a batch.
Parts divide(const PictureSet& set, const Settings& settings);

}  // namespace weft::vision
