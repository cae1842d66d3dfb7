// The accuracy of a sequence classifier.
#pragma once

#include <functional>

#include "apps/lra/model.h"
#include "apps/training/train.h"

namespace weft::lra {

// Called occasionally with the fraction done.
using Advance = std::function<void(double)>;

// The mean loss over a part, and the figure "accuracy" in percent. Ties between logits go to the
// lower class.
Measure measure(const Model& model, const Sequences& part, const Advance& advance);
double accuracy(const Measure& measure);

}  // namespace weft::lra
