#include "apps/lra/task.h"

#include <cmath>

#include "apps/data/digest.h"
#include "ops/attention/mechanism.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace weft::lra {
namespace {

// Additions and multiplications of the matrix products of one step over B examples
// (Task::operations). Sequences are padded to the longest; attention is counted for the root mean
// square of their lengths.
double products_per_step(const SequenceClassifierConfig& m, i64 batch, const Sequences& part,
                         const std::vector<NamedParameter>& parameters) {
  double forward = 0, head = 0;  // of a sequence, and of an example
  for (const NamedParameter& p : parameters) {
    const bool looked_up = p.name == "positions" || p.name == "symbols.table";
    if (p.variable.shape().rank() < 2 || looked_up) continue;
    const double products = 2.0 * static_cast<double>(p.variable.shape().count());
    p.name == "head.weight" ? head += products : forward += products * double(m.length);
  }
  const i64 sequences = part.count() * part.together;
  double squares = 0;
  for (i64 i = 0; i < sequences; ++i) squares += std::pow(double(part.at(i).size()), 2);
  const auto mean = static_cast<i64>(std::sqrt(squares / double(sequences)));
  const AttentionSizes sizes{.B = 1,
                             .N = mean,
                             .S = mean,
                             .H = m.heads,
                             .E = m.width / m.heads,
                             .M = m.width / m.heads,
                             .d = m.width,
                             .N_max = m.length};
  const AttentionCost cost = attention_cost(AttentionSpec(m.attention), sizes, false, DType::f32);
  return double(batch) *
         (3 * head + double(m.together) *
                         (3 * forward +
                          double(m.layers) * (cost.forward_operations + cost.backward_operations)));
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
    Context context = step.context(s.seed);
    const Variable entropy = cross_entropy(network(context, batch[0], batch[1]), batch[2]);
    return with_penalty(context, entropy);
  };
  task.validate = [&](const Advance& advance) { return measure(model, data.validation, advance); };
  task.criterion = [](const Measure& measured) { return 100 - figure_of(measured, "accuracy"); };
  task.round = "round";
  task.targets_per_step =
      s.batch * static_cast<i64>(data.train.symbols.size()) / data.train.count();
  task.operations = products_per_step(s.model, s.batch, data.train, task.parameters);
  task.score = {"cross_entropy", "nats", [](double nats) { return nats; }};
  task.metadata = metadata_of(model);
  task.metadata["data_xxh3"] = data_digest(data.train.symbols, data.train.labels);
  return task;
}

}  // namespace weft::lra
