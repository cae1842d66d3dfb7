#include "nn/universal_transformer.h"

#include <cmath>

#include "autograd/tape.h"
#include "nn/initializer.h"
#include "ops/linear/linear.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace weft {
namespace {

constexpr Initializer small{Initializer::uniform, 0.05};

const UniversalTransformerConfig& checked(const UniversalTransformerConfig& config) {
  const auto positive = [](const char* name, std::int64_t value) {
    require(value > 0, "universal transformer: {} must be at least 1, got {}", name, value);
  };
  positive("vocabulary", config.vocabulary);
  positive("width", config.width);
  positive("depth", config.depth);
  positive("heads", config.heads);
  positive("length", config.length);
  positive("conv_width", config.conv_width);
  require(config.encoding == "position" || config.encoding == "conv",
          "universal transformer: the encoding is position or conv, got '{}'", config.encoding);
  require(config.wiring == "universal" || config.wiring == "vanilla",
          "universal transformer: the wiring is universal or vanilla, got '{}'", config.wiring);
  for (const double rate :
       {config.attention_dropout, config.residual_dropout, config.output_dropout}) {
    require(rate >= 0 && rate < 1, "universal transformer: dropout rates are in [0, 1), got {}",
            rate);
  }
  require(std::isfinite(config.l2) && config.l2 >= 0,
          "universal transformer: l2 must not be negative, got {}", config.l2);
  return config;
}

nn::BlockOptions block_options(const UniversalTransformerConfig& config) {
  return {.attention = {.mechanism = config.attention,
                        .width = config.width,
                        .heads = config.heads,
                        .causal = true,
                        .dropout = config.attention_dropout},
          .wiring = config.wiring == "vanilla" ? Wiring::vanilla : Wiring::universal,
          .dropout = config.residual_dropout};
}

Variable sum_of_squares(const Variable& x) { return sum(mul(x, x)); }

}  // namespace

UniversalTransformer::UniversalTransformer(const UniversalTransformerConfig& config,
                                           std::uint64_t seed, DType dtype)
    : config_(checked(config)),
      embedding_(config.vocabulary, config.width, dtype),
      output_(config.width, config.width, false, dtype) {
  if (config.encoding == "conv") {
    convolution_.emplace(config.conv_width, config.width, config.width, Activation::relu, dtype);
  } else {
    position_ = Parameter({config.length, config.width}, small, dtype);
    depth_ = Parameter({config.depth, config.width}, small, dtype);
  }
  const std::int64_t blocks = config.shared ? 1 : config.depth;
  for (std::int64_t i = 0; i < blocks; ++i) blocks_.emplace_back(block_options(config), dtype);
  if (config.act) {
    halting_.emplace(config.width, 1, true, dtype);
    halting_->bias.initializer = {Initializer::constant, 0.1};
  }
  initialize(*this, seed);
}

const nn::TransformerBlock& UniversalTransformer::block(std::int64_t step) const {
  return blocks_[config_.shared ? 0 : static_cast<std::size_t>(step)];
}

// The coordinates are summed while they are small, so that h is passed over once.
Variable UniversalTransformer::encoded(const Variable& h, std::int64_t step,
                                       std::int64_t position) const {
  if (convolution_) return (*convolution_)(h);
  const Variable coordinates = add(slice(position_, 0, position, position + h.size(1)),
                                   slice(depth_, 0, step, step + 1));  // [N, d]
  return add(h, coordinates);
}

// What the steps of depth give together.
Accumulated UniversalTransformer::combined(std::span<const Variable> states) const {
  if (!halting_) return {states.back(), {}};
  return adaptive_computation(states, halting_->weight, halting_->bias);
}

Variable UniversalTransformer::logits_of(const Variable& states) const {
  return linear(states, transpose(embedding_.table, 0, 1));
}

UniversalTransformer::Hidden UniversalTransformer::hidden(Context& context,
                                                          const Tensor& ids) const {
  require(ids.rank() == 2, "universal transformer: wanted ids [B, N], got {}", ids.shape());
  require(convolution_ || ids.size(1) <= config_.length,
          "universal transformer: the model has {} positions, got ids {}; cut them into windows",
          config_.length, ids.shape());
  Variable h = embedding_(ids);
  std::vector<Variable> states;
  context.layers = static_cast<int>(config_.depth);
  for (std::int64_t t = 0; t < config_.depth; ++t) {
    context.layer = config_.shared ? 0 : static_cast<int>(t);
    context.depth = config_.shared ? static_cast<int>(t) : 0;
    h = block(t)(context, encoded(h, t, 0));
    states.push_back(h);
  }
  const auto [accumulated, ponder] = combined(states);
  const nn::Dropout dropout{config_.output_dropout};
  Variable penalty =
      scale(add(sum_of_squares(embedding_.table), sum_of_squares(output_.weight)), config_.l2);
  if (ponder.defined()) penalty = add(penalty, ponder);
  return {dropout(context, output_(accumulated)), penalty};
}

UniversalTransformer::Output UniversalTransformer::operator()(Context& context,
                                                              const Tensor& ids) const {
  const auto [states, penalty] = hidden(context, ids);
  return {logits_of(states), penalty};
}

UniversalTransformer::Loss UniversalTransformer::loss(Context& context, const Tensor& ids,
                                                      const Tensor& targets) const {
  const auto [states, penalty] = hidden(context, ids);
  return {linear_cross_entropy(states, embedding_.table, targets), penalty};
}

UniversalTransformer::Score UniversalTransformer::score(const Tensor& ids,
                                                        const Tensor& targets) const {
  const Tape::Pause pause;
  Context context = Context::evaluation();
  const auto [states, penalty] = hidden(context, ids);
  const Tensor nats = linear_cross_entropy_rows(states.value(), embedding_.table.value(), targets);
  return {nats, penalty.value()};
}

UniversalTransformer::State UniversalTransformer::start() const {
  State state;
  for (std::int64_t t = 0; t < config_.depth; ++t) {
    State::Step step{block(t).start(config_.length), {}};
    if (convolution_) step.convolution = convolution_->start();
    state.steps.push_back(std::move(step));
  }
  return state;
}

Tensor UniversalTransformer::step(State& state, std::int64_t id) const {
  require(convolution_ || state.position < config_.length,
          "universal transformer: the model has {} positions, and all are used; start again from "
          "a later character",
          config_.length);
  const Tape::Pause pause;
  Variable h = embedding_(Tensor::full({1, 1}, static_cast<double>(id), DType::i64, device()));
  std::vector<Variable> states;
  for (std::int64_t t = 0; t < config_.depth; ++t) {
    State::Step& step = state.steps[static_cast<std::size_t>(t)];
    h = convolution_ ? convolution_->step(step.convolution, h) : encoded(h, t, state.position);
    h = block(t).step(step.block, h);
    states.push_back(h);
  }
  ++state.position;
  const Variable logits = logits_of(output_(combined(states).states));
  return logits.value().reshape({config_.vocabulary});
}

}  // namespace weft
