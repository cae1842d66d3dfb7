// A vision transformer that is small enough for differences in f64, and pictures for it.
#pragma once

#include "nn/vision_transformer.h"
#include "tests/nn/checks.h"

namespace weft {

inline VisionTransformerConfig tiny_vit(const std::string& attention, i64 value_width = 0) {
  return {.size = 6,
          .channels = 2,
          .patch = 2,
          .classes = 4,
          .width = 6,
          .layers = 2,
          .heads = 2,
          .hidden = 5,
          .value_width = value_width,
          .attention = attention,
          .attention_dropout = 0.2,
          .dropout = 0.3};
}

inline Tensor images_for(const VisionTransformerConfig& c, i64 batch) {
  return random_normal({batch, c.size, c.size, c.channels}, f64, 4).to(tested_device());
}

}  // namespace weft
