// Mixed precision: activations in bf16, parameters, their gradients and the optimizer in f32.
//
// A model stores its activations as its configuration's `precision` says, from its embedding on.
// Ops compute in f32 or multiply bf16 with f32 sums (autograd/apply.h), so the losses, the
// statistics of norms and the softmax are f32. bf16 has the range of f32, and losses are not
// scaled. Decoding is in f32 always. With "tf32" all is f32, and products on a CUDA device round
// their operands to TF32 (set_products_in_tf32() in runtime/matmul.h, which the program calls).
#pragma once

#include <string>

#include "ops/cast/cast.h"

namespace weft {

// Throws, naming the model, unless `precision` is f32, tf32 or bf16.
inline void check_precision(const char* model, const std::string& precision) {
  require(precision == "f32" || precision == "tf32" || precision == "bf16",
          "{}: the precision is f32, tf32 or bf16, got '{}'", model, precision);
}

// The type of the activations of a model with parameters of type `learnt`.
inline DType stored_type(DType learnt, const std::string& precision) {
  return precision == "bf16" ? DType::bf16 : learnt;
}

// x, of the type of the parameters, as the model stores it.
inline Variable stored(const Variable& x, const std::string& precision) {
  return cast(x, stored_type(x.value().dtype(), precision));
}

}  // namespace weft
