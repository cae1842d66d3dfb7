// A model on text: its training, and its losses.
#pragma once

#include <functional>

#include "apps/charlm/model.h"
#include "apps/common/text.h"
#include "apps/common/train.h"
#include "nn/universal_transformer.h"

namespace weft {

inline double bits(double nats) { return nats / 0.6931471805599453; }

// The loss of one batch, recorded where a tape is alive: cross-entropy and the model's penalty.
Task::Loss batch_loss(const UniversalTransformer& network, Context& context, const Batch& batch);

// The windows of one purpose are a function of the seed and the purpose, whatever else is drawn.
enum class Purpose : std::uint32_t { train = 1, validation = 2, test = 3 };
RandomKey window_key(Purpose purpose, std::uint64_t seed, std::uint32_t step);

// Called now and then with the share that is done.
using Advance = std::function<void(double)>;

// Means over `batches` batches of random windows.
Measure measure_random(const UniversalTransformer& network, Ids ids, Purpose purpose,
                       std::uint64_t seed, std::int64_t batches, std::int64_t batch,
                       const Advance& advance);

// Means over every character of `ids` but the first, in windows of the model's length.
Measure measure_all(const UniversalTransformer& network, Ids ids, std::int64_t batch,
                    const Advance& advance);

// Training on random windows of parts.train; model and parts stay where they are meanwhile.
Task training_task(const Model& model, const Parts& parts);

// What the best possible predictor would score on the windows of measure_all, in bits a character.
double best_possible(const Grammar& grammar, Vocabulary vocabulary, Ids ids, std::int64_t length);

}  // namespace weft
