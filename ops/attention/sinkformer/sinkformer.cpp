// Sinkformer: the call of the passes with potentials and the fact sheet. Equations:
// sinkformer.h.
#include "ops/attention/sinkformer/sinkformer.h"

#include "ops/attention/engines/pairs/potentials_attention.h"
#include "ops/attention/scores.h"

namespace weft {
namespace {

bool detaches(const AttentionSpec& spec) { return spec.integer("detach_columns") == 1; }

template <PotentialsFunction attention>
Attended attend_sinkformer(const AttentionSpec& spec, const AttentionCall& call,
                           std::span<const Variable> inputs) {
  return attention({.name = "sinkformer",
                    .temperature = temperature_of(spec, inputs[0].size(3)),
                    .iterations = spec.integer("iterations"),
                    .detach = detaches(spec),
                    .lengths = call.lengths,
                    .query_lengths = call.query_lengths,
                    .dropout = call.dropout,
                    .random = call.random},
                   inputs[0], inputs[1], inputs[2]);
}

AttentionCost cost_sinkformer(const AttentionSpec& spec, const AttentionSizes& sizes, bool,
                              DType type) {
  return potentials_cost(sizes, spec.integer("iterations"), detaches(spec), type);
}

OptionSheet detach_columns_option() {
  OptionSheet option =
      flag_option("detach_columns", false, "1: the columns' scales are constants for backward",
                  "iterations!=1");
  // With 1, gradients are not differences of outputs: tests/attention/sinkformer.cpp.
  option.tried = {"0"};
  return option;
}

const Registration registered_sinkformer{Mechanism{
    .name = "sinkformer",
    .title = "softmax attention normalised along rows and columns in turn",
    .paper =
        "M. Sander et al., Sinkformers: transformers with doubly stochastic attention, AISTATS "
        "2022, arXiv 2110.11773",
    .equations = "section 3",
    .inputs = query_key_value,
    .options = {{.name = "iterations",
                 .initial = "3",
                 .help = "half steps: odd ones normalise rows, even ones columns; 1: softmax",
                 .least = 1,
                 .most = 1000,
                 .tried = {"1", "2", "5"}},
                detach_columns_option(),
                temperature_option()},
    .masks = {.lengths = true, .query_lengths = true},
    .cross = true,
    .unordered_keys = true,
    .linear_in_values = true,
    .scaling = "N S",
    .attend = attend_sinkformer<potentials_attention>,
    .reference = attend_sinkformer<potentials_definition>,
    .cost = cost_sinkformer}};

}  // namespace
}  // namespace weft
