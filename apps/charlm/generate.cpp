#include "apps/charlm/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/random.h"

namespace weft {

Generator::Generator(const UniversalTransformer& network)
    : network_(network), state_(network.start()) {}

Tensor Generator::read(std::int64_t id) {
  const UniversalTransformerConfig& config = network_.config();
  if (config.encoding == "position") {
    if (state_.position == config.length) {
      ++restarts_;
      state_ = network_.start();
      window_.erase(window_.begin(), window_.end() - config.length / 2);
      for (const std::int64_t past : window_) network_.step(state_, past);
    }
    window_.push_back(id);
  }
  return network_.step(state_, id);
}

std::int64_t draw(const Tensor& logits, const SamplingOptions& options, std::int64_t first,
                  std::uint64_t index) {
  require(all_finite(logits),
          "sample: the model's logits are not finite; its weights are damaged");
  const std::vector<float> values = logits.to_vector<float>();
  std::vector<std::int64_t> ids(values.size() - static_cast<std::size_t>(first));
  std::iota(ids.begin(), ids.end(), first);
  const auto logit = [&](std::int64_t id) { return values[static_cast<std::size_t>(id)]; };
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::int64_t a, std::int64_t b) { return logit(a) > logit(b); });
  if (options.temperature == 0) return ids.front();
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(ids.size())) {
    ids.resize(static_cast<std::size_t>(options.top_k));
  }
  std::vector<double> weights;
  double sum = 0;
  for (const std::int64_t id : ids) {
    weights.push_back(std::exp((logit(id) - logit(ids.front())) / options.temperature));
    sum += weights.back();
  }
  const Philox words = RandomKey{.seed = options.seed}.words(index);
  double rest = (words.word[0] + words.word[1] * 0x1p-32) * 0x1p-32 * sum;
  std::size_t choice = 0;
  while (choice + 1 < ids.size() && rest >= weights[choice]) rest -= weights[choice++];
  return ids[choice];
}

void write_text(const Model& model, const std::string& prompt, std::int64_t characters,
                const SamplingOptions& options, const std::function<void(char)>& say,
                const std::function<void()>& restarted) {
  const Vocabulary vocabulary = model.vocabulary();
  const std::int64_t first = vocabulary == Vocabulary::text8 ? 1 : 0;  // text8's 0 is no character
  Generator generator(*model.network);
  bool announced = false;
  const auto read = [&](std::int64_t id) {
    const Tensor logits = generator.read(id);
    if (generator.restarts() > 0 && !std::exchange(announced, true)) restarted();
    return logits;
  };
  Tensor logits;
  for (const std::uint8_t id : encode(vocabulary, prompt.empty() ? " " : prompt, "--prompt")) {
    logits = read(id);
  }
  for (std::int64_t i = 0; i < characters; ++i) {
    const std::int64_t id = draw(logits, options, first, static_cast<std::uint64_t>(i));
    say(character_of(vocabulary, id));
    if (i + 1 < characters) logits = read(id);
  }
}

}  // namespace weft
