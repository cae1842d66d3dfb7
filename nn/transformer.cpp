#include "nn/transformer.h"

#include <memory>

#include "autograd/tape.h"
#include "nn/recomputed.h"
#include "ops/dropout/mask.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"

namespace weft::nn {
BlockWiring block_wiring(const std::string& name) {
  if (name == "universal") return BlockWiring::universal;
  if (name == "vanilla") return BlockWiring::vanilla;
  require(name == "prenorm",
          "transformer block: the wiring is universal, vanilla or prenorm, got '{}'", name);
  return BlockWiring::prenorm;
}

Activation activation_behind(const AttentionSpec& spec, Activation usual) {
  return spec.mechanism().owns_residual ? Activation::silu : usual;
}

TransformerBlock::TransformerBlock(const BlockOptions& options, DType dtype)
    : options(options),
      attention(options.attention, dtype),
      feed_forward(options.attention.width,
                   options.hidden > 0 ? options.hidden : 4 * options.attention.width,
                   activation_behind(attention.spec(), options.activation), dtype),
      norm2(options.attention.width, dtype) {
  check_dropout_rate("transformer block", options.dropout);
  require(options.hidden >= 0, "transformer block: hidden is 0 or more, got {}", options.hidden);
  if (!attention.owns_residual()) norm1.emplace(options.attention.width, dtype);
}

template <class Attended>
Variable TransformerBlock::around(Context& context, const Variable& x,
                                  const Attended& attended) const {
  if (options.wiring == BlockWiring::prenorm) {
    const Dropout drop{options.dropout};
    const Variable y = norm1 ? add(x, drop(context, attended((*norm1)(x)))) : attended(x);
    return add(y, drop(context, feed_forward(norm2(y))));
  }
  const auto residual = [&] {
    const bool vanilla = options.wiring == BlockWiring::vanilla;
    return Residual{.dropout_on = vanilla ? DropoutOn::branch : DropoutOn::sum,
                    .dropout = context.rate(options.dropout),
                    .random = context.random.next()};
  };
  // Function arguments are evaluated in any order, but the order of draws is fixed.
  const Residual first = residual();
  const Variable mixed = attended(x);
  const Variable y = norm1 ? (*norm1)(x, mixed, first) : mixed;
  return norm2(y, feed_forward(y), residual());
}

Variable TransformerBlock::operator()(Context& context, const Variable& x,
                                      const Lengths& lengths) const {
  return perhaps_recomputed(context, x, [this, lengths](Context& own, const Variable& input) {
    return around(own, input, [&](const Variable& in) { return attention(own, in, lengths); });
  });
}

Variable TransformerBlock::following(Context& context, const Variable& x, Tensor& memory) const {
  const auto next = std::make_shared<Tensor>();
  const auto block = [this, before = memory, next](Context& own, const Variable& input) {
    return around(own, input, [&](const Variable& in) {
      const Variable parts[] = {before, in};
      const Variable seen = concatenate(parts, 1);
      *next = seen.value().slice(1, in.size(1), seen.size(1)).clone();
      return attention(own, in, {}, seen);
    });
  };
  const Variable y = perhaps_recomputed(context, x, block);
  memory = *next;
  return y;
}

Variable TransformerBlock::step(State& state, const Variable& x) const {
  const Tape::Pause pause;
  Context context = Context::evaluation();
  return around(context, x, [&](const Variable& in) { return attention.step(state, in); });
}

Transformer::Transformer(const BlockOptions& options, i64 layers, DType dtype) {
  require(layers >= 0, "transformer: wanted 0 layers or more, got {}", layers);
  for (i64 i = 0; i < layers; ++i) blocks.emplace_back(options, dtype);
}

Variable Transformer::operator()(Context& context, const Variable& x,
                                 const Lengths& lengths) const {
  Variable h = x;
  context.layer = 0;
  context.layers = static_cast<int>(blocks.size());
  for (const TransformerBlock& block : blocks) {
    h = block(context, h, lengths);
    ++context.layer;
  }
  return h;
}

Transformer::State Transformer::start(i64 capacity, i64 batch) const {
  State state;
  for (const TransformerBlock& block : blocks) state.push_back(block.start(capacity, batch));
  return state;
}

Variable Transformer::step(State& state, const Variable& x) const {
  require(state.size() == blocks.size(), "transformer: the state is of {} blocks, the model of {}",
          state.size(), blocks.size());
  Variable h = x;
  for (std::size_t i = 0; i < blocks.size(); ++i) h = blocks[i].step(state[i], h);
  return h;
}

}  // namespace weft::nn
