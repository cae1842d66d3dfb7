// One description of each op, in every form it takes: shapes, broadcasting, options. The checks of
// every_op.cpp run over all of them; the files named by op hold what is special about each.
#pragma once

#include <string>
#include <vector>

#include "autograd/gradcheck.h"

namespace weft {

struct OpCase {
  std::string name;
  Differentiable f;
  std::vector<Tensor> inputs;  // f64, or integers that f takes as constants
};

std::vector<OpCase> op_cases();

// One of each op that is cut into several pieces of parallel work, along every axis it is cut.
std::vector<OpCase> large_op_cases();

// Integers below `bound`.
Tensor random_integers(const Shape& shape, i64 bound, std::uint64_t seed);

}  // namespace weft
