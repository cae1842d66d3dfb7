// The picture of an attention matrix.
#pragma once

#include <string>

#include "runtime/tensor.h"

namespace weft {

// Writes weights [N, S], queries down and keys across, to a file by its ending: .safetensors (the
// tensor `map`) or .png (a picture with axes, a scale and the title). Throws for any other ending.
void write_map(const Tensor& weights, const std::string& title, const std::string& path);

}  // namespace weft
