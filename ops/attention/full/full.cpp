// Full attention: the definition, decoding and the fact sheet. Equations: full.h.
#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/pattern.h"
#include "ops/attention/scores.h"

namespace weft {
namespace {

Attended attend_full(const AttentionSpec& spec, const AttentionCall& call,
                     std::span<const Variable> inputs) {
  const PairsCall pairs{"full", temperature_of(spec, inputs[0].size(3)), call.query_lengths,
                        call.dropout, call.random};
  PairsPart part{.band = call.causal ? Band::causal() : Band::all(), .biased = true};
  if (call.pattern) part.lists = call.pattern->lists(inputs[0].value().device(), call.causal);
  return pairs_attention(pairs, inputs[0], {inputs[1], inputs[2], call.lengths}, part,
                         inputs.size() > 3 ? inputs[3] : Variable{});
}

// The definition: N × S matrices, plain ops.
Attended reference_full(const AttentionSpec& spec, const AttentionCall& call,
                        std::span<const Variable> inputs) {
  const Variable &q = inputs[0], &k = inputs[1];
  Tensor seen;
  if (call.causal || call.lengths.defined() || call.query_lengths.defined() || call.pattern) {
    seen = visibility(call, q.size(0), q.size(1), k.size(1));
  }
  if (call.pattern) seen = call.pattern->of(seen, q.size(2));
  return attention_over(seen, temperature_of(spec, q.size(3)), call, q, k, inputs[2],
                        inputs.size() > 3 ? inputs[3] : Variable{});
}

AttentionCost cost_full(const AttentionSpec&, const AttentionSizes& s, bool causal, DType type) {
  return pairs_cost(s, double(s.B * s.H * s.N) * double(s.S) / (causal ? 2 : 1), type);
}

const Registration registered_full{Mechanism{
    .name = "full",
    .title = "softmax attention over all keys",
    .paper = "A. Vaswani et al., Attention is all you need, NeurIPS 2017, arXiv 1706.03762",
    .equations = "eq. 1",
    .inputs =
        [](const AttentionSpec& spec, const AttentionSizes& sizes) {
          AttentionInputs inputs = query_key_value(spec, sizes);
          inputs.push_back(
              {.name = "bias", .role = Role::bias, .axes = "b h N S", .optional = true});
          return inputs;
        },
    .options = {temperature_option()},
    .masks =
        {.causal = true, .lengths = true, .query_lengths = true, .bias = true, .pattern = true},
    .cross = true,
    .strictly_causal = true,
    .unordered_keys = true,
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .takes_bf16 = true,
    .scaling = "N S",
    .attend = attend_full,
    .reference = reference_full,
    .cost = cost_full,
    .decode = decode_by_cache}};

}  // namespace
}  // namespace weft
