#include "apps/vision/task.h"

#include "apps/data/digest.h"
#include "apps/training/model_products.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace weft::vision {
namespace {

// Task::operations for each picture.
double products_per_picture(const VisionTransformerConfig& m,
                            const std::vector<NamedParameter>& parameters) {
  const i64 e = m.width / m.heads;
  const AttentionLayers layers{.spec = AttentionSpec(m.attention),
                               .sizes = {.B = 1,
                                         .N = m.tokens(),
                                         .S = m.tokens(),
                                         .H = m.heads,
                                         .E = e,
                                         .M = m.value_width > 0 ? m.value_width / m.heads : e,
                                         .d = m.width,
                                         .N_max = m.tokens()},
                               .count = m.layers};
  const auto uses = [&](const std::string& name) {
    if (name == "position") return 0.0;
    return name == "head.weight" ? 1.0 : static_cast<double>(m.tokens());
  };
  return products_per_sequence(parameters, layers, uses);
}

}  // namespace

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
    Context context = step.context(s);
    const Variable entropy = cross_entropy(network(context, batch[0]), batch[1]);
    return with_penalty(context, entropy);
  };
  task.validate = [&](const Advance& advance) {
    return measure(model, parts.set.train, parts.validation, advance);
  };
  task.odd_batches = [&] {
    for (const auto& [pictures, part] : {std::pair{&parts.set.train, &parts.validation},
                                         std::pair{&parts.set.test, &parts.test}}) {
      const std::span<const i64> which(*part);
      measure(model, *pictures, which.last(which.size() % static_cast<std::size_t>(s.at_once())),
              [](double) {});
    }
  };
  task.criterion = [](const Measure& measured) { return 100 - figure_of(measured, "top_1"); };
  task.targets_per_step = s.batch * s.model.tokens();
  task.operations = static_cast<double>(s.batch) * products_per_picture(s.model, task.parameters);
  task.operations_at_most = cost_is_at_most(AttentionSpec(s.model.attention));
  task.score = {"cross_entropy", "nats", [](double nats) { return nats; }};
  task.metadata = metadata_of(model);
  task.metadata["data_xxh3"] = data_digest(parts.set.train.pixels, parts.set.train.labels);
  return task;
}

TrainOptions training_options(const Settings& settings, i64 epoch_steps, const RunOptions& run) {
  TrainOptions options = train_options(settings, epoch_steps, run);
  if (settings.rate_by_epoch) {
    options.learning_rate = [rate = options.learning_rate, epoch_steps](i64 step) {
      return rate((step - 1) / epoch_steps * epoch_steps + 1);
    };
  }
  return options;
}

}  // namespace weft::vision
