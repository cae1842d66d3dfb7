// The activation that an op applies to its result; its maths is in functions.h.
#pragma once

#include "ops/pointwise/functions.h"

namespace weft {

enum class Activation { none, relu, gelu, silu };

// Calls f(φ) with the function of functions.h; not for none.
template <class F>
void with_activation(Activation activation, const F& f) {
  activation == Activation::gelu   ? f(Gelu{})
  : activation == Activation::silu ? f(Silu{})
                                   : f(Relu{});
}

}  // namespace weft
