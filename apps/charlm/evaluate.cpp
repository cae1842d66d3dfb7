#include "apps/charlm/evaluate.h"

#include "ops/pointwise/pointwise.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

// Module draws use the streams 0, 1, … of a step; windows stand far above.
constexpr std::uint32_t window_streams = 0xffff0000;

// Means over batches, each counted by its targets.
Measure mean(const UniversalTransformer& network, std::int64_t batches,
             const std::function<Batch(std::int64_t)>& batch_at, const Advance& advance) {
  Measure sum{0, 0};
  double targets = 0;
  for (std::int64_t i = 0; i < batches; ++i) {
    const Batch drawn = batch_at(i);
    const Device device = network.device();
    const Batch batch{drawn.inputs.to(device), drawn.targets.to(device)};
    Context context = Context::evaluation();
    const Task::Loss loss = batch_loss(network, context, batch);
    const auto count = static_cast<double>(batch.targets.count());
    sum.loss += loss.loss.value().item() * count;
    sum.cross_entropy += loss.cross_entropy.item() * count;
    targets += count;
    advance(static_cast<double>(i + 1) / static_cast<double>(batches));
  }
  return {sum.loss / targets, sum.cross_entropy / targets};
}

}  // namespace

Task::Loss batch_loss(const UniversalTransformer& network, Context& context, const Batch& batch) {
  const auto [entropy, penalty] = network.loss(context, batch.inputs, batch.targets);
  return {add(entropy, penalty), entropy.value()};
}

RandomKey window_key(Purpose purpose, std::uint64_t seed, std::uint32_t step) {
  return {seed, step, window_streams + static_cast<std::uint32_t>(purpose)};
}

Measure measure_random(const UniversalTransformer& network, Ids ids, Purpose purpose,
                       std::uint64_t seed, std::int64_t batches, std::int64_t batch,
                       const Advance& advance) {
  const auto batch_at = [&](std::int64_t i) {
    const RandomKey key = window_key(purpose, seed, static_cast<std::uint32_t>(i));
    return random_windows(ids, key, batch, network.config().length);
  };
  return mean(network, batches, batch_at, advance);
}

Measure measure_all(const UniversalTransformer& network, Ids ids, std::int64_t batch,
                    const Advance& advance) {
  const ConsecutiveWindows windows(ids, batch, network.config().length);
  return mean(network, windows.count(), [&](std::int64_t i) { return windows[i]; }, advance);
}

Task training_task(const Model& model, const Parts& parts) {
  const Settings& s = model.settings;
  const UniversalTransformer& network = *model.network;
  Task task;
  task.parameters = model.parameters();
  task.batch = [&](std::uint32_t step) {
    const RandomKey key = window_key(Purpose::train, s.seed, step);
    const Batch windows = random_windows(parts.train, key, s.batch, s.model.length);
    return std::vector{windows.inputs, windows.targets};
  };
  task.loss = [&](const std::vector<Tensor>& batch, const Task::Step& step) {
    Context context(true, s.seed, step.number, step.at);
    return batch_loss(network, context, {batch[0], batch[1]});
  };
  task.validate = [&](const Advance& advance) {
    return measure_random(network, parts.validation, Purpose::validation, s.seed,
                          s.validation_batches, s.batch, advance);
  };
  task.targets_per_step = s.batch * s.model.length;
  task.score = {"bits_per_character", "bpc", bits};
  task.metadata = metadata_of(s);
  return task;
}

double best_possible(const Grammar& grammar, Vocabulary vocabulary, Ids ids, std::int64_t length) {
  std::string text;
  for (const std::uint8_t id : ids) text += character_of(vocabulary, id);
  const auto step = static_cast<std::size_t>(length);
  const std::size_t targets = text.size() - 1;
  std::vector<double> bits((targets + step - 1) / step);
  parallel_for(static_cast<std::int64_t>(bits.size()), [&](std::int64_t i) {
    const auto window = static_cast<std::size_t>(i);
    bits[window] = grammar.bits(std::string_view(text).substr(window * step, step + 1));
  });
  double sum = 0;
  for (const double b : bits) sum += b;
  return sum / static_cast<double>(targets);
}

}  // namespace weft
