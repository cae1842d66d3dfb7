// How often a model of pictures is right.
#pragma once

#include <functional>
#include <span>

#include "apps/data/augment.h"
#include "apps/training/train.h"
#include "apps/vision/model.h"

namespace weft::vision {

// How many rows of logits [B, classes] have their label [B] among the k largest; of equal logits
// the lower class counts as the larger. A NaN is never among them.
i64 count_top(const Tensor& logits, const Tensor& labels, i64 k);

// Called now and then with the share that is done.
using Advance = std::function<void(double)>;

// The mean loss over these pictures, and the figures top_1 and top_5, in percent.
Measure measure(const Model& model, const Pictures& pictures, std::span<const i64> which,
                const Advance& advance);
// One of its figures; throws where it has none of this key.
double percent(const Measure& measure, const std::string& key);

// The pictures of a model as its settings divide them.
struct Parts {
  const PictureSet& set;
  std::vector<i64> train, validation, test;
};
// Throws where validation leaves no picture, or fewer than a batch.
Parts divide(const PictureSet& set, const Settings& settings);

}  // namespace weft::vision
