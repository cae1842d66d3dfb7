// The activation that an op applies to what it computes; its maths stand in functions.h.
#pragma once

namespace weft {

enum class Activation { none, relu, gelu };

}  // namespace weft
