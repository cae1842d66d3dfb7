// What mechanisms over scores τ q · k share: the temperature, and, for their definitions, the masks
// written out as matrices.
#pragma once

#include "ops/attention/mechanism.h"

namespace weft {

// τ: the option `temperature`, or 1/√E.
OptionSheet temperature_option();
double temperature_of(const AttentionSpec& spec, std::int64_t E);

// 1 where query i may see key j by the masks of the call, as f64 [B, 1, N, S].
Tensor visibility(const AttentionCall& call, std::int64_t B, std::int64_t N, std::int64_t S);

// z + (0 where `seen` is 1, −∞ where it is 0); shapes broadcast.
Variable masked(const Variable& z, const Tensor& seen);

}  // namespace weft
