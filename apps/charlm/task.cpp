#include "apps/charlm/task.h"

#include <algorithm>

#include "apps/charlm/evaluate.h"
#include "apps/data/digest.h"

namespace weft::charlm {

Task training_task(const Model& model, const Parts& parts) {
  const Settings& s = model.settings;
  const UniversalTransformer& network = *model.network;
  Task task = training_of(*model.network, s);
  task.batch = [&](std::uint32_t step) {
    const RandomKey key = batch_key(Purpose::train, s.seed, step);
    const Batch windows = random_windows(parts.train, key, own_rows(s.batch), s.model.length);
    return std::vector{windows.inputs, windows.targets};
  };
  task.validate = [&](const Advance& advance) {
    const Pass pass = measure_random(network, parts.validation, Purpose::validation, s.seed,
                                     s.validation_batches, s, advance);
    return Measure{pass.loss, pass.cross_entropy};
  };
  if (s.model.memory > 0) {
    const ContiguousTexts texts(parts.train, s.batch, s.model.length, own_rows(s.batch));
    task.batch = [texts](std::uint32_t step) { return following_batch(texts, step); };
    const ContiguousTexts held_out(parts.validation, s.batch, s.model.length);
    task.validate = [&, texts = held_out](const Advance& advance) {
      const i64 batches = std::min(s.validation_batches, texts.segments());
      const Pass pass = pass_over(
          network, Texts::go_on, batches, [&](i64 i) { return texts[i]; }, advance);
      return Measure{pass.loss, pass.cross_entropy};
    };
  }
  task.odd_batches = [&] {
    const auto odd = static_cast<std::size_t>(s.at_once() * s.model.length);
    const std::size_t targets = (parts.test.size() - 1) % odd;
    pass_over_all(network, parts.test.last(targets + 1), s.at_once(), [](double) {});
  };
  task.round = "round";  // windows are random: there is no pass over the text
  task.score = {"bits_per_character", "bpc", bits};
  task.metadata = metadata_of(model);
  // Numbers below 256 are hashed as bytes, as in the checkpoints of
  // bench/results/agglomerative-1-paper.
  task.metadata["data_xxh3"] =
      model.vocabulary.size() > 256
          ? data_digest(parts.train, parts.validation)
          : digest_of_low_bytes(parts.train) + digest_of_low_bytes(parts.validation);
  return task;
}

}  // namespace weft::charlm
