// recompute(f, inputs): trades time for memory.
//
// f runs once now, unrecorded, and once more in backward, recorded on a tape of its own that is
// walked at once; in between only the inputs are kept. f must compute the same both times: random
// streams and whatever else it changes go in by value. Gradients of parameters that f holds itself
// gather in their places as ever, and the tape says when they are complete.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "autograd/variable.h"

namespace weft {

using Recomputed = std::function<std::vector<Variable>(std::span<const Variable>)>;

std::vector<Variable> recompute(const Recomputed& f, std::span<const Variable> inputs);

}  // namespace weft
