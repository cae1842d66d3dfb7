#include "apps/lra/task.h"

#include <cmath>

#include "apps/data/digest.h"
#include "apps/training/model_products.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace weft::lra {
namespace {

// Task::operations for each example. Sequences are padded to the longest; attention is counted for
// the root mean square of their lengths.
double products_per_example(const SequenceClassifierConfig& m, const Sequences& part,
                            const std::vector<NamedParameter>& parameters) {
  const i64 sequences = part.count() * part.together;
  double squares = 0;
  for (i64 i = 0; i < sequences; ++i) squares += std::pow(double(part.at(i).size()), 2);
  const auto mean = static_cast<i64>(std::sqrt(squares / double(sequences)));
  const i64 e = m.width / m.heads;
  const AttentionLayers layers{.spec = AttentionSpec(m.attention),
                               .sizes = {.B = 1,
                                         .N = mean,
                                         .S = mean,
                                         .H = m.heads,
                                         .E = e,
                                         .M = e,
                                         .d = m.width,
                                         .N_max = m.length},
                               .count = m.layers};
  const auto together = static_cast<double>(m.together);
  const auto uses = [&](const std::string& name) {
    if (name == "positions" || name == "symbols.table") return 0.0;
    return name == "head.weight" ? 1 / together : static_cast<double>(m.length);
  };
  return together * products_per_sequence(parameters, layers, uses);
}

}  // namespace

Task training_task(const Model& model, const SequenceTask& data, SequenceBatches& batches) {
  const Settings& s = model.settings;
  const SequenceClassifier& network = *model.network;
  Task task;
  take_parts(task, *model.network, s.seed);
  task.batch = [&](std::uint32_t step) {
    const SequenceBatch batch = batches(step);
    return std::vector{batch.symbols, batch.lengths, batch.labels};
  };
  task.loss = [&](const std::vector<Tensor>& batch, const Task::Step& step) {
    Context context = step.context(s);
    const Variable entropy = cross_entropy(network(context, batch[0], batch[1]), batch[2]);
    return with_penalty(context, entropy);
  };
  task.validate = [&](const Advance& advance) { return measure(model, data.validation, advance); };
  task.criterion = [](const Measure& measured) { return 100 - figure_of(measured, "accuracy"); };
  task.round = "round";
  task.targets_per_step =
      s.batch * static_cast<i64>(data.train.symbols.size()) / data.train.count();
  task.operations =
      static_cast<double>(s.batch) * products_per_example(s.model, data.train, task.parameters);
  task.operations_at_most = cost_is_at_most(AttentionSpec(s.model.attention));
  task.score = {"cross_entropy", "nats", [](double nats) { return nats; }};
  task.metadata = metadata_of(model);
  task.metadata["data_xxh3"] = data_digest(data.train.symbols, data.train.labels);
  return task;
}

}  // namespace weft::lra
