#include "apps/charlm/evaluate.h"

#include "runtime/parallel.h"

namespace weft::charlm {

Pass measure_random(const UniversalTransformer& network, Ids ids, Purpose purpose,
                    std::uint64_t seed, i64 batches, const TrainingSettings& settings,
                    const Advance& advance) {
  const auto part_at = [&](i64 i) {
    const auto batch = static_cast<std::uint32_t>(i / settings.shards);
    const Rows rows{i % settings.shards * settings.at_once(), settings.at_once()};
    return random_windows(ids, batch_key(purpose, seed, batch), rows, network.config().length);
  };
  return pass_over(network, Texts::apart, batches * settings.shards, part_at, advance);
}

double best_possible(const Text& text, Ids ids, i64 length) {
  const std::string characters = text.vocabulary.decode(ids);
  const auto step = static_cast<std::size_t>(length);
  const std::size_t targets = characters.size() - 1;
  std::vector<double> bits((targets + step - 1) / step);
  parallel_for(static_cast<i64>(bits.size()), [&](i64 i) {
    const auto window = static_cast<std::size_t>(i);
    bits[window] =
        text.grammar->bits(std::string_view(characters).substr(window * step, step + 1));
  });
  double sum = 0;
  for (const double b : bits) sum += b;
  return sum / static_cast<double>(targets);
}

}  // namespace weft::charlm
