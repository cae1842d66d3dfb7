// The accuracy of a sequence classifier, and what it is compared with.
#pragma once

#include "apps/lra/model.h"
#include "apps/training/train.h"

namespace weft::lra {

// The mean loss over a part, and the figure "accuracy" in percent.
Measure measure(const Model& model, const Sequences& part, const Advance& advance);

// The accuracy on a part, in percent, of models that hardly look: "majority", the most frequent
// class of the training part; and where first_tells, "first_word", the most frequent class there
// for each first symbol.
std::vector<Figure> baselines(const SequenceTask& task, const Sequences& part);

}  // namespace weft::lra
