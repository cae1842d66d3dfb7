// Arithmetic of a model with attention: Task::operations.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "ops/attention/mechanism.h"

namespace weft {

struct AttentionLayers {
  AttentionSpec spec;
  AttentionSizes sizes;  // of one sequence: B = 1
  bool causal = false;
  i64 count = 1;
};

// Additions and multiplications of the matrix products of one step over one sequence. Matrices are
// counted three times: forward, and for the gradients of both factors. `uses`: how many vectors of
// one sequence the forward pass multiplies by the matrix of this name; 0 for a table whose rows are
// looked up. It is not asked about parameters of the mechanism: attention counts these.
double products_per_sequence(const std::vector<NamedParameter>& parameters,
                             const AttentionLayers& layers,
                             const std::function<double(const std::string& name)>& uses);

}  // namespace weft
