#include "nn/transformer.h"

namespace weft::nn {

TransformerBlock::TransformerBlock(const BlockOptions& options, DType dtype)
    : options(options),
      attention(options.attention, dtype),
      norm1(options.attention.width, dtype),
      feed_forward(options.attention.width,
                   options.hidden > 0 ? options.hidden : 4 * options.attention.width,
                   options.activation, dtype),
      norm2(options.attention.width, dtype) {
  check_dropout_rate("transformer block", options.dropout);
}

Variable TransformerBlock::operator()(Context& context, const Variable& x,
                                      const Lengths& lengths) const {
  const auto residual = [&] {
    return Residual{.wiring = options.wiring,
                    .dropout = context.rate(options.dropout),
                    .random = context.random.next()};
  };
  // Arguments are evaluated in any order, but draws have one.
  const Residual first = residual();
  const Variable y = norm1(x, attention(context, x, lengths), first);
  return norm2(y, feed_forward(y), residual());
}

Variable TransformerBlock::step(State& state, const Variable& x) const {
  const Residual residual{.wiring = options.wiring};
  const Variable y = norm1(x, attention.step(state, x), residual);
  return norm2(y, feed_forward(y), residual);
}

Transformer::Transformer(const BlockOptions& options, std::int64_t layers, DType dtype) {
  for (std::int64_t i = 0; i < layers; ++i) blocks.emplace_back(options, dtype);
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

Transformer::State Transformer::start(std::int64_t capacity, std::int64_t batch) const {
  State state;
  for (const TransformerBlock& block : blocks) state.push_back(block.start(capacity, batch));
  return state;
}

Variable Transformer::step(State& state, const Variable& x) const {
  Variable h = x;
  for (std::size_t i = 0; i < blocks.size(); ++i) h = blocks[i].step(state[i], h);
  return h;
}

}  // namespace weft::nn
