#include "apps/charlm/evaluate.h"

#include "apps/common/digest.h"
#include "runtime/parallel.h"

namespace weft::charlm {

Pass measure_random(const UniversalTransformer& network, Ids ids, Purpose purpose,
                    std::uint64_t seed, std::int64_t batches, std::int64_t batch,
                    const Advance& advance) {
  const auto batch_at = [&](std::int64_t i) {
    const RandomKey key = batch_key(purpose, seed, static_cast<std::uint32_t>(i));
    return random_windows(ids, key, batch, network.config().length);
  };
  return pass_over(network, batches, batch_at, advance);
}

Task training_task(const Model& model, const Parts& parts) {
  const Settings& s = model.settings;
  const UniversalTransformer& network = *model.network;
  Task task = training_of(*model.network, s);
  task.batch = [&](std::uint32_t step) {
    const RandomKey key = batch_key(Purpose::train, s.seed, step);
    const Batch windows = random_windows(parts.train, key, s.batch, s.model.length);
    return std::vector{windows.inputs, windows.targets};
  };
  task.validate = [&](const Advance& advance) {
    const Pass pass = measure_random(network, parts.validation, Purpose::validation, s.seed,
                                     s.validation_batches, s.batch, advance);
    return Measure{pass.loss, pass.cross_entropy};
  };
  task.score = {"bits_per_character", "bpc", bits};
  task.metadata = metadata_of(s);
  task.metadata["data_xxh3"] = data_digest(parts.train, parts.validation);
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

}  // namespace weft::charlm
