#include "apps/lra/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/common/digest.h"
#include "ops/attention/mechanism.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace weft::lra {
namespace {

// Additions and multiplications of the products of one step over B sequences (Task::operations),
// which are filled up to the longest; attention counts over a sequence of the mean square of their
// lengths.
double products_per_step(const SequenceClassifierConfig& m, i64 batch, const Sequences& part,
                         const std::vector<NamedParameter>& parameters) {
  double forward = 0;
  for (const NamedParameter& p : parameters) {
    const bool looked_up = p.name == "positions" || p.name == "symbols.table";
    if (p.variable.shape().rank() < 2 || looked_up) continue;
    forward += 2.0 * static_cast<double>(p.variable.shape().count()) *
               static_cast<double>(p.name == "head.weight" ? 1 : m.length);
  }
  double squares = 0;
  for (i64 i = 0; i < part.count(); ++i) squares += std::pow(double(part.at(i).size()), 2);
  const auto mean = static_cast<i64>(std::sqrt(squares / double(part.count())));
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
         (3 * forward + double(m.layers) * (cost.forward_operations + cost.backward_operations));
}

}  // namespace

Measure measure(const Model& model, const Sequences& part, const Advance& advance) {
  const SequenceClassifier& network = *model.network;
  const i64 classes = model.settings.model.classes;
  std::vector<i64> which(static_cast<std::size_t>(part.count()));
  std::iota(which.begin(), which.end(), 0);
  const auto most = static_cast<std::size_t>(model.settings.batch);
  double loss = 0;
  i64 right = 0;
  for (std::size_t begin = 0; begin < which.size(); begin += most) {
    const auto now = std::span(which).subspan(begin, std::min(most, which.size() - begin));
    const SequenceBatch batch = batch_of(part, now, model.settings.model.length);
    Context context = Context::evaluation();
    const Variable logits =
        network(context, batch.symbols.to(network.device()), batch.lengths.to(network.device()));
    const Tensor labels = batch.labels.to(network.device());
    loss += cross_entropy(logits, labels).value().item() * static_cast<double>(now.size());
    const std::vector<float> values = logits.value().to_vector<float>();
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto row = std::span(values).subspan(i * static_cast<std::size_t>(classes),
                                                 static_cast<std::size_t>(classes));
      right +=
          std::max_element(row.begin(), row.end()) - row.begin() == batch.labels.data<i64>()[i];
    }
    advance(static_cast<double>(begin + now.size()) / static_cast<double>(which.size()));
  }
  const auto count = static_cast<double>(which.size());
  return {loss / count,
          loss / count,
          {{"accuracy", "% right", 100 * static_cast<double>(right) / count}}};
}

double accuracy(const Measure& measure) { return measure.figures.at(0).value; }

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
    Context context(true, s.seed, step.number, step.at);
    const Variable entropy = cross_entropy(network(context, batch[0], batch[1]), batch[2]);
    const Variable penalty = context.penalty();
    return Task::Loss{penalty.defined() ? add(entropy, penalty) : entropy, entropy.value()};
  };
  task.validate = [&](const Advance& advance) { return measure(model, data.validation, advance); };
  task.criterion = [](const Measure& measured) { return 100 - accuracy(measured); };
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
