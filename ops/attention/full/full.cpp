// Full attention: the definition, decoding and the fact sheet. Equations: full.h.
#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/scores.h"
#include "ops/dropout/dropout.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

namespace weft {
namespace {

Attended attend_full(const AttentionSpec& spec, const AttentionCall& call,
                     std::span<const Variable> inputs) {
  const PairsCall pairs{"full", temperature_of(spec, inputs[0].size(3)), call.query_lengths,
                        call.dropout, call.random};
  return pairs_attention(pairs, inputs[0], {inputs[1], inputs[2], call.lengths},
                         {.band = call.causal ? Band::causal() : Band::all(), .biased = true},
                         inputs.size() > 3 ? inputs[3] : Variable{});
}

// The definition: N × S matrices, plain ops.
Attended reference_full(const AttentionSpec& spec, const AttentionCall& call,
                        std::span<const Variable> inputs) {
  const Variable q = transpose(inputs[0], 1, 2);  // [B, H, N, E]
  const Variable k = transpose(inputs[1], 1, 2);  // [B, H, S, E]
  const Variable v = transpose(inputs[2], 1, 2);  // [B, H, S, M]
  Variable z = scale(matmul(q, transpose(k, 2, 3)), temperature_of(spec, q.size(3)));
  if (inputs.size() > 3 && inputs[3].defined()) z = add(z, inputs[3]);
  const Variable a = softmax(masked(z, visibility(call, q.size(0), q.size(2), k.size(2))));
  return transpose(matmul(dropout(a, call.dropout, call.random), v), 1, 2);
}

AttentionCost cost_full(const AttentionSpec&, const AttentionSizes& s, bool causal, DType type) {
  return pairs_cost(s, double(s.B * s.H * s.N) * double(s.S) / (causal ? 2 : 1), type);
}

const Registration registered{Mechanism{
    .name = "full",
    .title = "softmax attention over all keys",
    .paper = "A. Vaswani et al., Attention is all you need, NeurIPS 2017, arXiv 1706.03762",
    .equations = "eq. 1",
    .inputs = [](const AttentionSpec& spec, const AttentionSizes& sizes) {
      AttentionInputs inputs = query_key_value(spec, sizes);
      inputs.push_back({.name = "bias", .role = Role::bias, .axes = "b h N S", .optional = true});
      return inputs;
    },
    .options = {temperature_option()},
    .masks = {.causal = true, .lengths = true, .query_lengths = true, .bias = true},
    .cross = true,
    .strictly_causal = true,
    .unordered_keys = true,
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .scaling = "N S",
    .attend = attend_full,
    .reference = reference_full,
    .cost = cost_full,
    .decode = decode_by_cache}};

}  // namespace
}  // namespace weft
