// What mechanisms over scores τ q · k share: inputs, temperature, lengths, and, for their
// definitions, the masks written out as matrices.
#pragma once

#include "ops/attention/length.h"
#include "ops/attention/mechanism.h"

namespace weft {

// τ: the option `temperature`, or 1/√E.
OptionSheet temperature_option();
double temperature_of(const AttentionSpec& spec, std::int64_t E);

// q, k and v of one width of heads, by three projections.
std::vector<AttentionInput> query_key_value();

// Lengths [B] on the CPU as kernels see them; and the length of batch item b (length.h).
inline const std::int64_t* numbers_of(const Tensor& lengths) {
  return lengths.defined() ? lengths.data<std::int64_t>() : nullptr;
}
inline std::int64_t length_of(const Tensor& lengths, std::int64_t b, std::int64_t all) {
  return length_of(numbers_of(lengths), b, all);
}

// x / |x| over the last axis, of plain ops.
Variable unit_rows(const Variable& x);

// 1 where query i may see key j by the masks of the call, as f64 [B, 1, N, S].
Tensor visibility(const AttentionCall& call, std::int64_t B, std::int64_t N, std::int64_t S);

// z + (0 where `seen` is 1, −∞ where it is 0); shapes broadcast.
Variable masked(const Variable& z, const Tensor& seen);

}  // namespace weft
