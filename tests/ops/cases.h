// One description of each op, in every form: shapes, broadcasting, options. The checks of
// every_op.cpp run over all of them; the files named by op hold the rest.
#pragma once

#include <string>
#include <vector>

#include "autograd/gradcheck.h"

namespace weft {

struct OpCase {
  std::string name;
  Differentiable f;
  std::vector<Tensor> inputs;  // f64, or integers that f takes as constants
  int roundings = 1;           // in bf16: of intermediate values and of the result
};

std::vector<OpCase> op_cases();

// One of each op that is split into several tasks, along every axis of the split.
std::vector<OpCase> large_op_cases();

}  // namespace weft
