// Linformer attention: the products, the definition and the fact sheet. Equations: linformer.h.
#include "ops/attention/linformer/linformer.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/scores.h"
#include "ops/blocks/blocks.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"

namespace weft {
namespace {

bool shares(const AttentionSpec& spec) { return spec.integer("share_kv") == 1; }

// The matrix that mixes values, among the inputs.
const Variable& value_matrix(const AttentionSpec& spec, std::span<const Variable> inputs) {
  return inputs[shares(spec) ? 3 : 4];
}

// x [B, S, H, E] and proj [N_max, rank], of which the first S rows are used → [B, rank, H, E].
Variable slots(const Variable& x, const Variable& proj, const Tensor& lengths) {
  const i64 B = x.size(0), S = x.size(1), H = x.size(2), E = x.size(3);
  // The mean of a block of one position: 0 beyond the length, even for NaN.
  const Variable there = lengths.defined() ? block_mean(x, 1, lengths) : x;
  const Variable mixing = transpose(slice(proj, 0, 0, S), 0, 1);
  return reshape(matmul(mixing, reshape(there, {B, S, H * E})), {B, proj.size(1), H, E});
}

Attended attend_linformer(const AttentionSpec& spec, const AttentionCall& call,
                          std::span<const Variable> inputs) {
  const PairsCall pairs{"linformer", temperature_of(spec, inputs[0].size(3)), call.query_lengths,
                        call.dropout, call.random};
  return pairs_attention(pairs, inputs[0],
                         {slots(inputs[1], inputs[3], call.lengths),
                          slots(inputs[2], value_matrix(spec, inputs), call.lengths)},
                         PairsPart{});
}

Attended reference_linformer(const AttentionSpec& spec, const AttentionCall& call,
                             std::span<const Variable> inputs) {
  const Variable& q = inputs[0];
  const i64 B = q.size(0), S = inputs[1].size(1);
  const auto mixed = [&](const Variable& x, const Variable& proj) {
    const Tensor there = existence(call.lengths, B, S, x.value().dtype()).reshape({B, S, 1, 1});
    const Variable heads = transpose(transpose(mul(x, there), 1, 2), 2, 3);  // [B, H, E, S]
    return transpose(transpose(matmul(heads, slice(proj, 0, 0, S)), 2, 3), 1, 2);
  };
  AttentionCall over_slots = call;
  over_slots.lengths = {};
  const Variable k = mixed(inputs[1], inputs[3]), v = mixed(inputs[2], value_matrix(spec, inputs));
  return attention_over(visibility(over_slots, B, q.size(1), k.size(1)),
                        temperature_of(spec, q.size(3)), call, q, k, v);
}

AttentionCost cost_linformer(const AttentionSpec& spec, const AttentionSizes& s, bool, DType type) {
  const i64 rank = spec.integer("rank");
  const double heads = double(s.B * s.H), item = double(size_of(type));
  AttentionSizes over_slots = s;
  over_slots.S = rank;
  AttentionCost cost = pairs_cost(over_slots, heads * double(s.N * rank), type);
  const double product = 2 * heads * double(s.S * rank * (s.E + s.M));
  cost.forward_operations += product;
  cost.backward_operations += 2 * product;
  const double mixed = item * heads * double(rank * (s.E + s.M));
  cost.saved_bytes += mixed;
  // Backward of the keys' product comes last, when everything saved has been freed: the gradient of
  // the rows of proj_k, before it is part of the whole, and with share_kv the contribution of the
  // values to it.
  const double matrix = item * double(s.S * rank);
  const double last = (shares(spec) ? 2 : 1) * matrix - cost.saved_bytes;
  // Backward of attention comes first, before the gradients of keys, values and matrices exist.
  const double missing = item * heads * double(s.S * (s.E + s.M)) + (shares(spec) ? 1 : 2) * matrix;
  const auto largest = [&](double inside) {
    return std::max({inside + mixed - missing, last, 0.0});
  };
  cost.working_bytes = largest(cost.working_bytes);
  cost.cuda_working_bytes = largest(cost.cuda_working_bytes);
  return cost;
}

const Registration registered_linformer{Mechanism{
    .name = "linformer",
    .title = "softmax attention to learnt mixtures of the keys",
    .paper = "S. Wang et al., Linformer: self-attention with linear complexity, arXiv 2006.04768",
    .equations = "eq. 7",
    .inputs =
        [](const AttentionSpec& spec, const AttentionSizes& sizes) {
          AttentionInputs inputs = query_key_value(spec, sizes);
          const auto add = [&](const char* name) {
            inputs.push_back(
                {.name = name,
                 .role = Role::parameter,
                 .side = Side::reference,
                 .axes = "N_max rank",
                 .weight = {Initializer::uniform, 1 / std::sqrt(spec.number("rank"))}});
          };
          add("proj_k");
          if (!shares(spec)) add("proj_v");
          return inputs;
        },
    .options = {{.name = "rank",
                 .initial = "256",
                 .help = "r: slots that the keys are mixed into",
                 .least = 1,
                 .most = 1 << 20,
                 .tried = {"70"}},
                flag_option("share_kv", false, "1: proj_k mixes the values, too"),
                temperature_option()},
    .masks = {.lengths = true, .query_lengths = true},
    .cross = true,
    .linear_in_values = true,
    .scaling = "N r",
    .attend = attend_linformer,
    .reference = reference_linformer,
    .cost = cost_linformer}};

}  // namespace
}  // namespace weft
