// recompute(f, inputs): trades time for memory.
//
// f runs once now, unrecorded, and once more in backward, recorded on a tape of its own that is
// walked at once; only the inputs are kept in between. f must compute the same both times: random
// streams and other state that it changes are passed by value. Gradients of parameters that f
// itself holds accumulate as usual, and the tape reports when they are complete.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "autograd/variable.h"

namespace weft {

using Recomputed = std::function<std::vector<Variable>(std::span<const Variable>)>;

std::vector<Variable> recompute(const Recomputed& f, std::span<const Variable> inputs);

}  // namespace weft
