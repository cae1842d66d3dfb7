// A universal transformer that is small enough for differences in f64.
#pragma once

#include "nn/universal_transformer.h"
#include "tests/nn/checks.h"

namespace weft {

inline UniversalTransformerConfig tiny_text_model(const std::string& attention,
                                                  const std::string& encoding) {
  return {.vocabulary = 5,
          .width = 6,
          .depth = 3,
          .heads = 2,
          .length = 12,
          .attention = attention,
          .encoding = encoding,
          .conv_width = 3,
          .l2 = 0.01};
}

}  // namespace weft
