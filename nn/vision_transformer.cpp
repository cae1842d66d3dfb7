#include "nn/vision_transformer.h"

#include <cmath>

#include "nn/initializer.h"
#include "nn/precision.h"
#include "nn/recomputed.h"
#include "ops/dropout/mask.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace weft {
namespace {

const VisionTransformerConfig& checked(const VisionTransformerConfig& config) {
  const auto positive = [](const char* name, i64 value) {
    require(value > 0, "vision transformer: {} must be at least 1, got {}", name, value);
  };
  positive("size", config.size);
  positive("channels", config.channels);
  positive("patch", config.patch);
  positive("classes", config.classes);
  positive("width", config.width);
  positive("layers", config.layers);
  positive("heads", config.heads);
  positive("hidden", config.hidden);
  check_precision("vision transformer", config.precision);
  require(
      config.size % config.patch == 0,
      "vision transformer: patches of {} pixels do not divide a picture of {}; choose a divisor",
      config.patch, config.size);
  require(config.value_width >= 0 && config.value_width % config.heads == 0,
          "vision transformer: the value width {} does not divide into {} heads; choose a multiple",
          config.value_width, config.heads);
  for (const double rate : {config.attention_dropout, config.dropout}) {
    check_dropout_rate("vision transformer", rate);
  }
  return config;
}

nn::AttentionOptions attention_options(const VisionTransformerConfig& config) {
  return {.mechanism = config.attention,
          .width = config.width,
          .heads = config.heads,
          .value_width = config.value_width / config.heads,
          .causal = false,
          .dropout = config.attention_dropout,
          .output_bias = true,
          .max_length = config.tokens()};
}

// Initialises weights and biases of all linear maps in `part` as PyTorch does.
template <class Part>
void start_linear_maps(Part& part) {
  if constexpr (std::is_same_v<Part, nn::Linear>) {
    const Initializer uniform{Initializer::uniform,
                              1 / std::sqrt(static_cast<double>(part.weight.value().size(0)))};
    part.weight.initializer = part.bias.initializer = uniform;
  } else if constexpr (module_detail::is_optional<Part>) {
    if (part) start_linear_maps(*part);
  } else if constexpr (module_detail::is_vector<Part>) {
    for (auto& inner : part) start_linear_maps(inner);
  } else if constexpr (!module_detail::is_leaf<Part>) {
    part.each([](const std::string&, auto& inner) { start_linear_maps(inner); });
  }
}

}  // namespace

namespace nn {

VisionBlock::VisionBlock(const VisionTransformerConfig& config, DType dtype)
    : dropout{config.dropout},
      norm2(config.width, dtype),
      attention(attention_options(config), dtype),
      up(config.width, config.hidden, true, dtype),
      down(config.hidden, config.width, true, dtype) {
  if (!attention.owns_residual()) norm1.emplace(config.width, dtype);
}

Variable VisionBlock::operator()(Context& context, const Variable& x) const {
  return perhaps_recomputed(context, x, [this](Context& own, const Variable& in) {
    const Variable y =
        norm1 ? add(in, dropout(own, attention(own, (*norm1)(in)))) : attention(own, in);
    const auto activation = norm1 ? gelu_erf : silu;
    const Variable inner = dropout(own, activation(up(norm2(y))));
    return add(y, dropout(own, down(inner)));
  });
}

}  // namespace nn

VisionTransformer::VisionTransformer(const VisionTransformerConfig& config, std::uint64_t seed,
                                     DType dtype)
    : config_(checked(config)),
      patch_(config.patch * config.patch * config.channels, config.width, true, dtype),
      position_({config.tokens() + 1, config.width}, {Initializer::normal, 1}, dtype),
      class_token_({config.width}, {Initializer::normal, 1}, dtype),
      norm_(config.width, dtype),
      head_(config.width, config.classes, true, dtype) {
  for (i64 i = 0; i < config.layers; ++i) blocks_.emplace_back(config, dtype);
  start_linear_maps(*this);
  initialize(*this, seed);
}

Variable VisionTransformer::operator()(Context& context, const Tensor& images,
                                       std::vector<Tensor>* states) const {
  const i64 S = config_.size, c = config_.channels;
  require(images.rank() == 4 && images.size(1) == S && images.size(2) == S && images.size(3) == c,
          "vision transformer: wanted images [B, {}, {}, {}], got {}", S, S, c, images.shape());
  const nn::Dropout dropout{config_.dropout};
  const Variable positions = slice(position_, 0, 0, config_.tokens());
  const Variable patches = stored(patches_of(images, config_.patch), config_.precision);
  Variable h = dropout(context, add(patch_(patches), positions));
  const DType learnt = position_.value().dtype();
  context.layer = 0;
  context.layers = static_cast<int>(blocks_.size());
  for (const nn::VisionBlock& block : blocks_) {
    h = block(context, h);
    ++context.layer;
    if (states != nullptr) states->push_back(cast(h, learnt).value());
  }
  return head_(norm_(cast(mean(h, 1), learnt)));
}

// Rows of pixels are split into segments as wide as a patch, and the segments of a patch are made
// adjacent.
Tensor patches_of(const Tensor& images, i64 patch) {
  const i64 B = images.size(0), down = images.size(1) / patch, across = images.size(2) / patch,
            piece = patch * images.size(3);
  return images.packed()
      .reshape({B, down, patch, across, piece})
      .transpose(2, 3)
      .reshaped({B, down * across, patch * piece});
}

}  // namespace weft
