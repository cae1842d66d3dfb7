// A product in bf16 whose right-hand matrix lies as the library chose.
#pragma once

#include <functional>

#include "runtime/tensor.h"

namespace weft::bench {

// Computes a b into memory of its own, in bf16, a [m, k] and b [k, n] with one contiguous axis;
// empty without a library, or instructions, for bf16.
std::function<void()> prepared_product(const Tensor& a, const Tensor& b);

}  // namespace weft::bench
