// The accuracy of a sequence classifier.
#pragma once

#include "apps/lra/model.h"
#include "apps/training/train.h"

namespace weft::lra {

// The mean loss over a part, and the figure "accuracy" in percent.
Measure measure(const Model& model, const Sequences& part, const Advance& advance);

}  // namespace weft::lra
