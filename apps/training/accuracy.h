// The accuracy of classifiers.
#pragma once

#include <span>

#include "apps/training/train.h"
#include "runtime/tensor.h"

namespace weft {

// The number of rows of logits [B, classes] whose label [B] is among the k largest. Ties between
// logits go to the lower class; NaN is never among the k largest.
i64 count_top(const Tensor& logits, const Tensor& labels, i64 k);

// What a network makes of some examples: logits [B, classes] on its device, and the labels [B].
struct Classified {
  Tensor logits, labels;
};

// The mean loss of these examples, in batches of at most `most`, and for each k the share of them,
// in percent, whose label is among the k largest. Batches are divided among the ranks.
struct Accuracy {
  double loss = 0;
  std::vector<double> top;
};
Accuracy accuracy_of(std::span<const i64> which, i64 most, std::span<const i64> k,
                     const std::function<Classified(std::span<const i64>)>& classify,
                     const Advance& advance);

}  // namespace weft
