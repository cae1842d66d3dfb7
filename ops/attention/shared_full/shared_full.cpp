// Shared-QK attention: the keys, definition, decoding and fact sheet. Equations: shared_full.h.
#include "ops/attention/shared_full/shared_full.h"

#include <algorithm>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/scores.h"
#include "ops/blocks/blocks.h"

namespace weft {
namespace {

AttentionSpec full_spec(const AttentionSpec& spec) {
  return AttentionSpec("full:temperature=" + spec.word("temperature"));
}

bool normalizes(const AttentionSpec& spec) { return spec.integer("normalize_keys") != 0; }

// Not of what stands beyond the lengths, which may be NaN.
Variable keys_of(const AttentionSpec& spec, const Variable& q, const Tensor& lengths) {
  if (!normalizes(spec)) return q;
  return unit_rows(within_lengths(q, lengths));
}

Attended attend_shared_full(const AttentionSpec& spec, const AttentionCall& call,
                            std::span<const Variable> inputs) {
  const Variable& q = inputs[0];
  const PairsCall pairs{"shared-full", temperature_of(spec, q.size(3)), call.lengths, call.dropout,
                        call.random};
  return pairs_attention(pairs, q, {keys_of(spec, q, call.lengths), inputs[1], call.lengths},
                         {.band = call.causal ? Band::causal() : Band::all()});
}

// The definition: that of `full`, with these keys.
Attended reference_shared_full(const AttentionSpec& spec, const AttentionCall& call,
                               std::span<const Variable> inputs) {
  const Variable& q = inputs[0];
  AttentionCall both = call;
  both.query_lengths = call.lengths;
  const std::array<Variable, 3> list{q, normalizes(spec) ? unit_rows(q) : q, inputs[1]};
  const AttentionSpec full = full_spec(spec);
  return full.mechanism().reference(full, both, list);
}

// The gradients of the two places of q exist at once. With normalize_keys k and n are kept, and n
// with ∞ for 0.
AttentionCost cost_shared_full(const AttentionSpec& spec, const AttentionSizes& s, bool causal,
                               DType type) {
  const AttentionSpec full("full");
  AttentionCost cost = full.mechanism().cost(full, s, causal, type);
  const double rows = double(s.B * s.N * s.H), count = rows * double(s.E);
  const double item = double(size_of(accumulator_of(type)));
  cost.backward_operations += count;
  cost.working_bytes += item * count;
  cost.cuda_working_bytes += item * count;
  if (!normalizes(spec)) return cost;
  cost.forward_operations += 3 * count;
  cost.backward_operations += 8 * count;
  cost.saved_bytes += item * (count + 2 * rows);
  const double later = item * (3 * count + 2 * rows);  // in backward of the norm
  cost.working_bytes = std::max(cost.working_bytes, later);
  cost.cuda_working_bytes = std::max(cost.cuda_working_bytes, later);
  return cost;
}

// Keeps keys and values; a position's key is computed from its query.
class SharedCache final : public DecodingState {
 public:
  SharedCache(const AttentionSpec& spec, const AttentionSizes& sizes, DType type, i64 capacity)
      : spec_(spec), cache_(full_spec(spec), sizes, type, capacity) {}

  Tensor step(std::span<const Tensor> inputs) override {
    const Tensor list[] = {inputs[0], keys_of(spec_, inputs[0], {}).value(), inputs[1]};
    return cache_.step(list);
  }

  i64 bytes() const override { return cache_.bytes(); }

 private:
  AttentionSpec spec_;
  KeyValueCache cache_;
};

std::unique_ptr<DecodingState> decode_shared_full(const AttentionSpec& spec,
                                                  const AttentionSizes& sizes, DType type,
                                                  i64 capacity) {
  return std::make_unique<SharedCache>(spec, sizes, type, capacity);
}

const Registration registered_shared_full{Mechanism{
    .name = "shared-full",
    .title = "softmax attention whose keys are the queries",
    .paper = "A. Vyas, A. Katharopoulos, F. Fleuret, Fast transformers with clustered attention, "
             "NeurIPS 2020, arXiv 2007.04825",
    .equations = "section 4.1; keys of length 1: Kitaev et al., Reformer, arXiv 2001.04451, "
                 "section 2",
    .inputs = [](const AttentionSpec&, const AttentionSizes&) -> AttentionInputs {
      return {{.name = "q", .axes = "B N H E", .matrix = "qv"},
              {.name = "v", .side = Side::reference, .axes = "B S H M", .matrix = "qv"}};
    },
    .options = {temperature_option(),
                flag_option("normalize_keys", false, "1: keys have length 1, as in Reformer")},
    .masks = {.causal = true, .lengths = true},
    .strictly_causal = true,
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .scaling = "N S",
    .attend = attend_shared_full,
    .reference = reference_shared_full,
    .cost = cost_shared_full,
    .decode = decode_shared_full}};

}  // namespace
}  // namespace weft
