#include "apps/charlm/evaluate.h"

#include "runtime/parallel.h"

namespace weft::charlm {

Pass measure_random(const UniversalTransformer& network, Ids ids, Purpose purpose,
                    std::uint64_t seed, i64 batches, i64 batch, const Advance& advance) {
  const auto batch_at = [&](i64 i) {
    const RandomKey key = batch_key(purpose, seed, static_cast<std::uint32_t>(i));
    return random_windows(ids, key, batch, network.config().length);
  };
  return pass_over(network, Texts::apart, batches, batch_at, advance);
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
