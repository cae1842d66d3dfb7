// A classifier of sequences: its training, and how often it is right.
#pragma once

#include <functional>

#include "apps/common/train.h"
#include "apps/lra/model.h"

namespace weft::lra {

// Called now and then with the share that is done.
using Advance = std::function<void(double)>;

// The mean loss over a part, and the figure accuracy, in percent. Of equal logits the lower class
// counts.
Measure measure(const Model& model, const Sequences& part, const Advance& advance);
double accuracy(const Measure& measure);

// Training on the task's part; both stay where they are meanwhile. The best round is that of the
// most validation sequences right.
Task training_task(const Model& model, const SequenceTask& data, SequenceBatches& batches);

}  // namespace weft::lra
