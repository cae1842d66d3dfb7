// Full attention up to a length, another mechanism above it.
// A. Katharopoulos et al., fast-transformers ("conditional-full").
//
// For sequences of different lengths: clustering, sorting and the like have a fixed cost, which is
// not worth it for short ones. Given up is one function of the inputs: an output changes abruptly
// where the length passes the limit.
//
//     out = full(q, k, v)     where N <= length and S <= length, with the temperature of inner
//     out = inner(q, k, v)    otherwise
//
// It is a wrapper: `conditional:length=512/i-clustered:clusters=100,topk=32`. Choices of the inner
// mechanism can be given if it is the one that runs.
//
// Masks: those that both have. Lengths apply to queries of full, too, where they do for inner.
//
// Backward is that of the mechanism that runs: one of the two functions is the whole output.
//
// Saved: what that mechanism saves. Time is its time.
//
// Read next: ops/attention/full/full.h, and the page of the inner mechanism.
#include <algorithm>

#include "ops/attention/mechanism.h"
#include "ops/attention/scores.h"

namespace weft {
namespace {

// Full attention with the temperature of the last inner mechanism.
AttentionSpec full_of_inner(const AttentionSpec& spec) {
  const AttentionSpec* last = spec.inner();
  while (last->inner() != nullptr) last = last->inner();
  const auto& options = last->mechanism().options;
  const bool has = std::ranges::count(options, "temperature", &OptionSheet::name) > 0;
  return AttentionSpec(has ? "full:temperature=" + last->word("temperature") : "full");
}

bool short_enough(const AttentionSpec& spec, i64 N, i64 S) {
  return std::max(N, S) <= spec.integer("length");
}

// The call of full attention. Where lengths apply to queries of the inner mechanism, they do here.
AttentionCall call_of_full(const AttentionSpec& spec, const AttentionCall& call) {
  const Mechanism& sheet = spec.mechanism();
  AttentionCall own = call;
  if (!sheet.masks.query_lengths && !sheet.cross) own.query_lengths = call.lengths;
  return own;
}

Attended attend_conditional(const AttentionSpec& spec, const AttentionCall& call,
                            std::span<const Variable> inputs) {
  const i64 N = inputs[0].size(1), S = inputs[1].size(1);
  if (!short_enough(spec, N, S)) return attend(*spec.inner(), call, inputs);
  require(call.given.empty(),
          "conditional: {} was given, but N = {} and S = {} are no longer than length={}, where "
          "full attention decides nothing",
          call.given.begin()->first, N, S, spec.integer("length"));
  return attend(full_of_inner(spec), call_of_full(spec, call), inputs);
}

Attended reference_conditional(const AttentionSpec& spec, const AttentionCall& call,
                               std::span<const Variable> inputs) {
  if (!short_enough(spec, inputs[0].size(1), inputs[1].size(1))) {
    return defined(*spec.inner(), call, inputs);
  }
  return defined(full_of_inner(spec), call_of_full(spec, call), inputs);
}

AttentionCost cost_conditional(const AttentionSpec& spec, const AttentionSizes& sizes, bool causal,
                               DType type) {
  const AttentionSpec chosen =
      short_enough(spec, sizes.N, sizes.S) ? full_of_inner(spec) : *spec.inner();
  return attention_cost(chosen, sizes, causal, type);
}

Mechanism around_inner(const Mechanism& own, const AttentionSpec& inner) {
  const Mechanism& other = inner.mechanism();
  std::string names;
  for (const AttentionInput& input : attention_inputs(inner)) {
    if (!input.optional) names += (names.empty() ? "" : ", ") + input.name;
  }
  require(names == "q, k, v",
          "attention conditional: wraps a mechanism over q, k, v; {} is one over {}", other.name,
          names);
  Mechanism sheet = own;
  sheet.choices = other.choices;
  sheet.masks = {.causal = other.masks.causal,
                 .lengths = other.masks.lengths,
                 .query_lengths = other.masks.query_lengths};
  sheet.cross = other.cross;
  sheet.causal_only = other.causal_only;
  sheet.strictly_causal = other.strictly_causal;
  sheet.unordered_keys = other.unordered_keys;
  sheet.linear_in_values = other.linear_in_values;
  if (other.row_sums == RowSums::one) sheet.row_sums = RowSums::one;
  sheet.drops_weights = other.drops_weights;
  sheet.scaling = other.scaling;
  sheet.memory = other.memory;
  return sheet;
}

const Registration registered_conditional{Mechanism{
    .name = "conditional",
    .title = "full attention up to a length, another mechanism above it",
    .paper = "A. Katharopoulos et al., fast-transformers, 2020, github.com/idiap/fast-transformers",
    .equations = "conditional-full",
    .kind = Kind::composition,
    .wrapper = true,
    .inputs = query_key_value,
    .options = {{.name = "length",
                 .initial = "512",
                 .help = "length up to which full attention is used",
                 .least = 1,
                 .most = 1e9,
                 .tried = {"1", "64"}}},
    .scaling = "that of the inner mechanism",
    .attend = attend_conditional,
    .reference = reference_conditional,
    .cost = cost_conditional,
    .around = around_inner,
    .inner_tried = {"topk:topk=3", "i-clustered:clusters=3,topk=4", "local:context=3"}}};

}  // namespace
}  // namespace weft
