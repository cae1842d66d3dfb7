#include "nn/sequence_classifier.h"

#include "nn/initializer.h"
#include "nn/precision.h"
#include "ops/blocks/blocks.h"
#include "ops/dropout/mask.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"

namespace weft {
namespace {

const SequenceClassifierConfig& checked(const SequenceClassifierConfig& config) {
  const auto positive = [](const char* name, i64 value) {
    require(value > 0, "sequence classifier: {} must be at least 1, got {}", name, value);
  };
  positive("symbols", config.symbols);
  positive("classes", config.classes);
  positive("length", config.length);
  require(config.together == 1 || config.together == 2,
          "sequence classifier: an example is 1 or 2 sequences, got {}", config.together);
  positive("width", config.width);
  positive("layers", config.layers);
  positive("heads", config.heads);
  positive("hidden", config.hidden);
  check_precision("sequence classifier", config.precision);
  for (const double rate : {config.attention_dropout, config.dropout}) {
    check_dropout_rate("sequence classifier", rate);
  }
  return config;
}

nn::BlockOptions block_options(const SequenceClassifierConfig& config) {
  return {.attention = {.mechanism = config.attention,
                        .width = config.width,
                        .heads = config.heads,
                        .causal = false,
                        .dropout = config.attention_dropout,
                        .output_bias = true,
                        .max_length = config.length},
          .hidden = config.hidden,
          .activation = Activation::gelu,
          .wiring = nn::BlockWiring::prenorm,
          .dropout = config.dropout};
}

}  // namespace

SequenceClassifier::SequenceClassifier(const SequenceClassifierConfig& config, std::uint64_t seed,
                                       DType dtype)
    : config_(checked(config)),
      symbols_(config.symbols, config.width, dtype),
      positions_({config.length, config.width}, {Initializer::normal, 0.02}, dtype),
      transformer_(block_options(config), config.layers, dtype),
      norm_(config.width, dtype),
      head_(config.together == 1 ? config.width : 4 * config.width, config.classes, true, dtype) {
  symbols_.table.initializer = {Initializer::normal, 0.02};
  initialize(*this, seed);
}

Variable SequenceClassifier::operator()(Context& context, const Tensor& symbols,
                                        const Tensor& lengths) const {
  require(symbols.rank() == 2 && symbols.size(1) <= config_.length,
          "sequence classifier: wanted symbols [B, N] with N at most {}, got {}", config_.length,
          symbols.shape());
  require(symbols.size(0) % config_.together == 0,
          "sequence classifier: wanted {} sequences for each example, got {} in all",
          config_.together, symbols.size(0));
  const i64 B = symbols.size(0), N = symbols.size(1), d = config_.width;
  const nn::Dropout dropout{config_.dropout};
  const Variable embedded = add(symbols_(symbols), slice(positions_, 0, 0, N));
  const Variable h = dropout(context, stored(embedded, config_.precision));
  const Variable states = norm_(transformer_(context, h, {.keys = lengths, .queries = {}}));
  const Variable pooled = block_mean(reshape(states, {B, N, 1, d}), N, lengths);
  const Variable means = cast(reshape(pooled, {B, d}), positions_.value().dtype());
  if (config_.together == 1) return head_(means);
  const Variable pairs = reshape(means, {B / 2, 2 * d});
  const Variable one = slice(pairs, 1, 0, d), two = slice(pairs, 1, d, 2 * d);
  return head_(concatenate(std::vector{one, two, mul(one, two), sub(one, two)}, 1));
}

}  // namespace weft
