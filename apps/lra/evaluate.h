// How often a classifier of sequences is right.
#pragma once

#include <functional>

#include "apps/lra/model.h"
#include "apps/training/train.h"

namespace weft::lra {

// Called now and then with the share that is done.
using Advance = std::function<void(double)>;

// The mean loss over a part, and the figure accuracy, in percent. Of equal logits the lower class
// counts.
Measure measure(const Model& model, const Sequences& part, const Advance& advance);
double accuracy(const Measure& measure);

}  // namespace weft::lra
