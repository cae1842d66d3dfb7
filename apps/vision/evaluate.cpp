#include "apps/vision/evaluate.h"

#include <numeric>

#include "apps/common/digest.h"
#include "ops/attention/mechanism.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace weft::vision {
namespace {

// Additions and multiplications of the products of one step, per token (Task::operations).
double products_per_token(const VisionTransformerConfig& m,
                          const std::vector<NamedParameter>& parameters) {
  double forward = 0;
  for (const NamedParameter& p : parameters) {
    const bool of_picture = p.name == "head.weight";
    if (p.variable.shape().rank() < 2 || p.name == "position") continue;
    forward += 2.0 * static_cast<double>(p.variable.shape().count()) /
               static_cast<double>(of_picture ? m.tokens() : 1);
  }
  const AttentionSpec spec(m.attention);
  const i64 e = m.width / m.heads;
  const AttentionSizes sizes{.B = 1,
                             .N = m.tokens(),
                             .S = m.tokens(),
                             .H = m.heads,
                             .E = e,
                             .M = m.value_width > 0 ? m.value_width / m.heads : e,
                             .d = m.width};
  const AttentionCost cost = attention_cost(spec, sizes, false, DType::f32);
  return 3 * forward + (cost.forward_operations + cost.backward_operations) *
                           static_cast<double>(m.layers) / static_cast<double>(m.tokens());
}

}  // namespace

i64 count_top(const Tensor& logits, const Tensor& labels, i64 k) {
  const i64 rows = logits.size(0), classes = logits.size(1);
  const std::vector<float> values = logits.to_vector<float>();
  const std::vector<i64> wanted = labels.to_vector<i64>();
  i64 right = 0;
  for (i64 i = 0; i < rows; ++i) {
    const float* const row = values.data() + i * classes;
    const i64 label = wanted[static_cast<std::size_t>(i)];
    i64 before = 0;
    for (i64 j = 0; j < classes; ++j) {
      before += row[j] > row[label] || (row[j] == row[label] && j < label);
    }
    right += before < k && row[label] == row[label];
  }
  return right;
}

Measure measure(const Model& model, const Pictures& pictures, std::span<const i64> which,
                const Advance& advance) {
  const Normalisation normalisation = normalisation_of(model.settings.dataset);
  const VisionTransformer& network = *model.network;
  const auto most = static_cast<std::size_t>(model.settings.batch);
  double loss = 0;
  i64 first = 0, fifth = 0;
  for (std::size_t begin = 0; begin < which.size(); begin += most) {
    const auto part = which.subspan(begin, std::min(most, which.size() - begin));
    const PictureBatch batch = plain_batch(pictures, part, normalisation);
    Context context = Context::evaluation();
    const Variable logits = network(context, batch.images.to(network.device()));
    const Tensor labels = batch.labels.to(network.device());
    loss += cross_entropy(logits, labels).value().item() * static_cast<double>(part.size());
    first += count_top(logits.value(), batch.labels, 1);
    fifth += count_top(logits.value(), batch.labels, 5);
    advance(static_cast<double>(begin + part.size()) / static_cast<double>(which.size()));
  }
  const auto count = static_cast<double>(which.size());
  return {loss / count,
          loss / count,
          {{"top_1", "% top-1", 100 * static_cast<double>(first) / count},
           {"top_5", "% top-5", 100 * static_cast<double>(fifth) / count}}};
}

double percent(const Measure& measure, const std::string& key) {
  for (const Figure& figure : measure.figures) {
    if (figure.key == key) return figure.value;
  }
  fail("vision: nothing measured {}", key);
}

Parts divide(const PictureSet& set, const Settings& settings) {
  const i64 count = set.train.count();
  require(settings.validation <= count - settings.batch,
          "--validation: holding out {} of {} training pictures leaves no batch of {}; choose less",
          settings.validation, count, settings.batch);
  Division division = hold_out(count, settings.validation, settings.seed);
  std::vector<i64> test(static_cast<std::size_t>(set.test.count()));
  std::iota(test.begin(), test.end(), 0);
  return {set, std::move(division.kept), std::move(division.held), std::move(test)};
}

Task training_task(const Model& model, const Parts& parts, TrainingBatches& batches) {
  const Settings& s = model.settings;
  const VisionTransformer& network = *model.network;
  Task task;
  take_parts(task, *model.network, s.seed);
  task.batch = [&](std::uint32_t step) {
    const PictureBatch batch = batches(step);
    return std::vector{batch.images, batch.labels};
  };
  task.loss = [&](const std::vector<Tensor>& batch, const Task::Step& step) {
    Context context(true, s.seed, step.number, step.at);
    const Variable entropy = cross_entropy(network(context, batch[0]), batch[1]);
    const Variable penalty = context.penalty();
    return Task::Loss{penalty.defined() ? add(entropy, penalty) : entropy, entropy.value()};
  };
  task.validate = [&](const Advance& advance) {
    return measure(model, parts.set.train, parts.validation, advance);
  };
  task.odd_batches = [&] {
    for (const auto& [pictures, part] : {std::pair{&parts.set.train, &parts.validation},
                                         std::pair{&parts.set.test, &parts.test}}) {
      const std::span<const i64> which(*part);
      measure(model, *pictures, which.last(which.size() % static_cast<std::size_t>(s.batch)),
              [](double) {});
    }
  };
  task.criterion = [](const Measure& measured) { return 100 - percent(measured, "top_1"); };
  task.targets_per_step = s.batch * s.model.tokens();
  task.operations =
      static_cast<double>(task.targets_per_step) * products_per_token(s.model, task.parameters);
  task.score = {"cross_entropy", "nats", [](double nats) { return nats; }};
  task.metadata = metadata_of(model);
  task.metadata["data_xxh3"] = data_digest(parts.set.train.pixels, parts.set.train.labels);
  return task;
}

}  // namespace weft::vision
