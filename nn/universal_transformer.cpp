#include "nn/universal_transformer.h"

#include <cmath>

#include "autograd/tape.h"
#include "nn/initializer.h"
#include "nn/precision.h"
#include "ops/dropout/mask.h"
#include "ops/linear/linear.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace weft {
namespace {

constexpr Initializer small{Initializer::uniform, 0.05};

const UniversalTransformerConfig& checked(const UniversalTransformerConfig& config) {
  const auto positive = [](const char* name, i64 value) {
    require(value > 0, "universal transformer: {} must be at least 1, got {}", name, value);
  };
  positive("vocabulary", config.vocabulary);
  positive("width", config.width);
  positive("depth", config.depth);
  positive("heads", config.heads);
  positive("length", config.length);
  positive("conv_width", config.conv_width);
  require(config.hidden >= 0, "universal transformer: hidden must not be negative, got {}",
          config.hidden);
  const std::string& e = config.encoding;
  require(e == "position" || e == "conv" || e == "rotary" || e == "none",
          "universal transformer: the encoding is position, conv, rotary or none, got '{}'", e);
  check_memory(config);
  check_precision("universal transformer", config.precision);
  nn::block_wiring(config.wiring);
  for (const double rate :
       {config.attention_dropout, config.residual_dropout, config.output_dropout}) {
    check_dropout_rate("universal transformer", rate);
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
                        .dropout = config.attention_dropout,
                        .max_length = config.length,
                        .rotary = config.encoding == "rotary"},
          .hidden = config.hidden,
          .wiring = nn::block_wiring(config.wiring),
          .dropout = config.residual_dropout};
}

Variable sum_of_squares(const Variable& x) { return sum(mul(x, x)); }

}  // namespace

void check_memory(const UniversalTransformerConfig& config) {
  require(config.memory >= 0, "memory: wanted 0 or more positions, got {}", config.memory);
  if (config.memory == 0) return;
  require(config.encoding != "position",
          "memory: the encoding position counts from the beginning of a segment, so that the "
          "memory before it would have no positions; use conv, rotary or none");
  const Mechanism& mechanism = AttentionSpec(config.attention).mechanism();
  require(mechanism.earlier_keys,
          "memory: {} takes no keys before its queries; use transformer-xl or adaptive-span",
          mechanism.name);
}

UniversalTransformer::UniversalTransformer(const UniversalTransformerConfig& config,
                                           std::uint64_t seed, DType dtype)
    : config_(checked(config)),
      learns_by_position_(learns_by_position(AttentionSpec(config.attention))),
      embedding_(config.vocabulary, config.width, dtype),
      output_(config.width, config.width, false, dtype) {
  if (config.encoding == "conv") {
    convolution_.emplace(config.conv_width, config.width, config.width, Activation::relu, dtype);
  } else if (numbered()) {
    position_ = Parameter({config.length, config.width}, small, dtype);
    depth_ = Parameter({config.depth, config.width}, small, dtype);
  }
  const i64 blocks = config.shared ? 1 : config.depth;
  for (i64 i = 0; i < blocks; ++i) blocks_.emplace_back(block_options(config), dtype);
  if (config.wiring == "prenorm") norm_.emplace(config.width, dtype);
  if (config.act) {
    halting_.emplace(config.width, 1, true, dtype);
    halting_->bias.initializer = {Initializer::constant, 0.1};
  }
  initialize(*this, seed);
}

const nn::TransformerBlock& UniversalTransformer::block(i64 step) const {
  return blocks_[config_.shared ? 0 : static_cast<std::size_t>(step)];
}

// The coordinates are added to each other first, so that there is one pass over h.
Variable UniversalTransformer::encoded(const Variable& h, i64 step, i64 position) const {
  if (convolution_) return (*convolution_)(h);
  if (!numbered()) return h;
  const Variable coordinates = add(slice(position_, 0, position, position + h.size(1)),
                                   slice(depth_, 0, step, step + 1));  // [N, d]
  return add(h, coordinates);
}

// The same for positions that follow `before`.
Variable UniversalTransformer::encoded_behind(nn::CausalConv::State& before, const Variable& h,
                                              i64 step, i64 position) const {
  return convolution_ ? convolution_->step(before, h) : encoded(h, step, position);
}

// The combination of the states of all depth steps.
Accumulated UniversalTransformer::combined(std::span<const Variable> states) const {
  if (!halting_) return {states.back(), {}};
  Accumulated combined = adaptive_computation(states, halting_->weight, halting_->bias);
  combined.states = cast(combined.states, states[0].value().dtype());
  return combined;
}

// The output map of the combined states.
Variable UniversalTransformer::outward(const Variable& accumulated) const {
  return output_(norm_ ? (*norm_)(accumulated) : accumulated);
}

Variable UniversalTransformer::logits_of(const Variable& states) const {
  return linear(states, transpose(embedding_.table, 0, 1));
}

UniversalTransformer::Memory UniversalTransformer::start_of(i64 texts) const {
  require(config_.memory > 0, "universal transformer: this model has no memory");
  const DType dtype = stored_type(embedding_.table.value().dtype(), config_.precision);
  Memory memory;
  for (i64 t = 0; t < config_.depth; ++t) {
    memory.steps.push_back(
        {Tensor::zeros({texts, config_.memory, config_.width}, dtype, device()), {}});
    if (convolution_) {
      const nn::CausalConv::State start = convolution_->start(texts);
      memory.steps.back().convolution = {start.window.to(dtype)};
    }
  }
  return memory;
}

UniversalTransformer::Hidden UniversalTransformer::hidden(Context& context, const Tensor& ids,
                                                          Memory* memory) const {
  require(ids.rank() == 2, "universal transformer: wanted ids [B, N], got {}", ids.shape());
  if (memory != nullptr) {
    const Shape wanted{ids.size(0), config_.memory, config_.width};
    for (const Memory::Step& step : memory->steps) {
      require(
          step.attention.shape() == wanted,
          "universal transformer: wanted a memory {} for {} texts, got {}; begin with start_of({})",
          wanted, ids.size(0), step.attention.shape(), ids.size(0));
    }
  }
  require(!has_last_position() || ids.size(1) <= config_.length,
          "universal transformer: the model has {} positions, got ids {}; cut them into windows",
          config_.length, ids.shape());
  Variable h = stored(embedding_(ids), config_.precision);
  std::vector<Variable> states;
  context.layers = static_cast<int>(config_.depth);
  for (i64 t = 0; t < config_.depth; ++t) {
    context.layer = config_.shared ? 0 : static_cast<int>(t);
    context.depth = config_.shared ? static_cast<int>(t) : 0;
    if (memory != nullptr) {
      Memory::Step& step = memory->steps.at(static_cast<std::size_t>(t));
      const Variable in = encoded_behind(step.convolution, h, t, 0);
      h = block(t).following(context, in, step.attention);
    } else {
      h = block(t)(context, encoded(h, t, 0));
    }
    states.push_back(h);
  }
  const auto [accumulated, ponder] = combined(states);
  const nn::Dropout dropout{config_.output_dropout};
  Variable penalty =
      scale(add(sum_of_squares(embedding_.table), sum_of_squares(output_.weight)), config_.l2);
  if (ponder.defined()) penalty = add(penalty, ponder);
  if (const Variable of_layers = context.penalty(); of_layers.defined()) {
    penalty = add(penalty, of_layers);
  }
  return {dropout(context, outward(accumulated)), penalty};
}

UniversalTransformer::Output UniversalTransformer::operator()(Context& context, const Tensor& ids,
                                                              Memory* memory) const {
  const auto [states, penalty] = hidden(context, ids, memory);
  return {logits_of(states), penalty};
}

UniversalTransformer::Loss UniversalTransformer::loss(Context& context, const Tensor& ids,
                                                      const Tensor& targets, Memory* memory) const {
  const auto [states, penalty] = hidden(context, ids, memory);
  return {linear_cross_entropy(states, embedding_.table, targets), penalty};
}

UniversalTransformer::Score UniversalTransformer::score(const Tensor& ids, const Tensor& targets,
                                                        Memory* memory) const {
  const Tape::Pause pause;
  Context context = Context::evaluation();
  const auto [states, penalty] = hidden(context, ids, memory);
  const Tensor nats = linear_cross_entropy_rows(states.value(), embedding_.table.value(), targets);
  return {nats, penalty.value()};
}

UniversalTransformer::State UniversalTransformer::start() const {
  State state;
  for (i64 t = 0; t < config_.depth; ++t) {
    State::Step step{block(t).start(config_.length + config_.memory), {}};
    if (convolution_) step.convolution = convolution_->start();
    state.steps.push_back(std::move(step));
  }
  return state;
}

Tensor UniversalTransformer::step(State& state, std::span<const i64> ids) const {
  const auto n = static_cast<i64>(ids.size());
  require(n > 0, "universal transformer: decoding needs an id");
  const i64 left = has_last_position() ? config_.length - state.position : n;
  require(
      n <= left,
      "universal transformer: the model has {} positions, and {} used; restart from a later token",
      config_.length, left == 0 ? "all are" : fmt::format("all but {} are", left));
  const Tape::Pause pause;
  const Tensor read = Tensor::from(std::vector<i64>(ids.begin(), ids.end()), {1, n});
  Variable h = embedding_(read.to(device()));
  std::vector<Variable> states;
  for (i64 t = 0; t < config_.depth; ++t) {
    State::Step& step = state.steps[static_cast<std::size_t>(t)];
    h = encoded_behind(step.convolution, h, t, state.position);
    h = block(t).step(step.block, h);
    states.push_back(slice(h, 1, n - 1, n));
  }
  state.position += n;
  const Variable logits = logits_of(outward(combined(states).states));
  return logits.value().reshape({config_.vocabulary});
}

}  // namespace weft
