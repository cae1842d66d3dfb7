// Sums of tensors of one shape, for accumulating gradients.
#pragma once

#include "runtime/tensor.h"

namespace weft {

Tensor added(const Tensor& a, const Tensor& b);                    // a + b, row-major
void add_into(const Tensor& target, const Tensor& value);         // target += value

}  // namespace weft
