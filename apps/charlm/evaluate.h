// The loss of a model on text.
#pragma once

#include "apps/charlm/model.h"
#include "apps/data/text.h"

namespace weft::charlm {

inline double bits(double nats) { return nats / 0.6931471805599453; }

// The loss over `batches` batches of random windows, each in the parts of the settings' shards.
Pass measure_random(const UniversalTransformer& network, Ids ids, Purpose purpose,
                    std::uint64_t seed, i64 batches, const TrainingSettings& settings,
                    const Advance& advance);

// The score of the best possible predictor on the windows of pass_over_all() over `ids`, in bits
// per character. Requires a text with a grammar.
double best_possible(const Text& text, Ids ids, i64 length);

}  // namespace weft::charlm
