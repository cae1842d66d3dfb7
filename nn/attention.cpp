#include "nn/attention.h"

#include <algorithm>

#include "ops/dropout/mask.h"
#include "ops/linear/linear.h"
#include "ops/views/views.h"

namespace weft::nn {
namespace {

AttentionSizes sizes_of(const AttentionOptions& options) {
  require(options.width > 0 && options.heads > 0,
          "attention: wanted a width and heads, got {} and {}", options.width, options.heads);
  const auto of_head = [&](std::int64_t given) {
    require(given > 0 || options.width % options.heads == 0,
            "attention: the width {} does not divide into {} heads; choose a multiple",
            options.width, options.heads);
    return given > 0 ? given : options.width / options.heads;
  };
  return {.H = options.heads,
          .E = of_head(options.key_width),
          .M = of_head(options.value_width),
          .d = options.width};
}

// Columns begin … end−1 of a matrix, or those elements of a vector.
Variable columns(const Variable& whole, std::int64_t begin, std::int64_t end) {
  const int axis = whole.value().rank() - 1;
  if (begin == 0 && end == whole.size(axis)) return whole;
  return slice(whole, axis, begin, end);
}

}  // namespace

Attention::Attention(const AttentionOptions& options, DType dtype)
    : options_(options), spec_(options.mechanism), sizes_(sizes_of(options)) {
  const Mechanism& mechanism = spec_.mechanism();
  require(!options.causal || mechanism.masks.causal, "attention: {} has no causal form",
          mechanism.name);
  require(options.causal || !mechanism.causal_only, "attention: {} has only a causal form",
          mechanism.name);
  check_dropout_rate("attention", options.dropout);
  for (const AttentionInput& input : mechanism.inputs) {
    Source source;
    if (input.optional) {
      // Stays undefined.
    } else if (input.role == Role::projected) {
      source = add_projection(input, dtype);
    } else if (input.role == Role::parameter) {
      source.index = learnt_.size();
      learnt_.push_back({input.name, Parameter(input_shape(input, sizes_), input.weight, dtype)});
    } else {
      require(input.role == Role::sequence, "attention: the layer cannot make the input {} of {}",
              input.name, mechanism.name);
    }
    sources_.push_back(source);
  }
  if (!mechanism.block) {
    output_.emplace(sizes_.H * sizes_.M, options.width, options.output_bias, dtype);
  }
}

// Adds the columns of `input` to the projection of its name, or makes that.
Attention::Source Attention::add_projection(const AttentionInput& input, DType dtype) {
  const std::string& name = input.matrix.empty() ? input.name : input.matrix;
  const std::int64_t wanted = input_shape(input, sizes_).count();
  const auto found = std::find_if(projections_.begin(), projections_.end(),
                                  [&](const Projection& p) { return p.name == name; });
  const auto index = static_cast<std::size_t>(found - projections_.begin());
  const std::int64_t begin = found == projections_.end() ? 0 : found->map.weight.value().size(1);
  Projection grown{name, Linear(options_.width, begin + wanted, input.biased, dtype)};
  grown.map.weight.initializer = input.weight;
  grown.map.bias.initializer = input.bias;
  if (index < projections_.size()) {
    require(projections_[index].map.bias.defined() == input.biased,
            "attention: {} shares the matrix {}, of which some columns have a bias and some none",
            input.name, name);
    projections_[index] = std::move(grown);
  } else {
    projections_.push_back(std::move(grown));
  }
  return {index, begin, begin + wanted};
}

// The `wanted` inputs, all of one sequence, as views of one product.
void Attention::project(const Variable& sequence, const std::vector<std::size_t>& wanted,
                        std::vector<Variable>& inputs) const {
  if (wanted.empty()) return;
  std::vector<Source> runs;  // neighbouring columns of one matrix are one run
  std::vector<std::int64_t> widths;
  bool biased = false;
  for (const std::size_t i : wanted) {
    const Source& source = sources_[i];
    widths.push_back(source.end - source.begin);
    biased = biased || projections_[source.index].map.bias.defined();
    if (!runs.empty() && runs.back().index == source.index && runs.back().end == source.begin) {
      runs.back().end = source.end;
    } else {
      runs.push_back(source);
    }
  }
  std::vector<Variable> weights, biases;
  for (const Source& run : runs) {
    const Linear& map = projections_[run.index].map;
    weights.push_back(columns(map.weight, run.begin, run.end));
    if (biased && map.bias.defined()) {
      biases.push_back(columns(map.bias, run.begin, run.end));
    } else if (biased) {
      const Tensor& weight = map.weight.value();
      biases.push_back(Tensor::zeros({run.end - run.begin}, weight.dtype(), weight.device()));
    }
  }
  const Variable weight = weights.size() == 1 ? weights[0] : concatenate(weights, 1);
  const Variable bias = !biased              ? Variable()
                        : biases.size() == 1 ? biases[0]
                                             : concatenate(biases, 0);
  const std::vector<Variable> parts = split(linear(sequence, weight, bias), 2, widths);
  AttentionSizes sizes = sizes_;
  sizes.B = sequence.size(0);
  sizes.N = sizes.S = sequence.size(1);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const AttentionInput& sheet = spec_.mechanism().inputs[wanted[i]];
    inputs[wanted[i]] = reshape(parts[i], input_shape(sheet, sizes));
  }
}

// What the mechanism takes, in its order. Without a memory both sides come from x.
std::vector<Variable> Attention::inputs_of(const Variable& x, const Variable& memory) const {
  const auto check = [&](const Variable& sequence) {
    require(sequence.value().rank() == 3 && sequence.size(2) == options_.width,
            "attention: wanted a sequence [B, N, {}], got {}", options_.width, sequence.shape());
  };
  check(x);
  if (memory.defined()) check(memory);
  const std::vector<AttentionInput>& sheets = spec_.mechanism().inputs;
  std::vector<Variable> inputs(sheets.size());
  std::vector<std::size_t> from_x, from_memory;
  for (std::size_t i = 0; i < sheets.size(); ++i) {
    if (sheets[i].optional) continue;
    const bool elsewhere = memory.defined() && sheets[i].side == Side::reference;
    if (sheets[i].role == Role::projected) {
      (elsewhere ? from_memory : from_x).push_back(i);
    } else if (sheets[i].role == Role::sequence) {
      inputs[i] = elsewhere ? memory : x;
    } else {
      inputs[i] = learnt_[sources_[i].index].parameter;
    }
  }
  project(x, from_x, inputs);
  if (memory.defined()) project(memory, from_memory, inputs);
  return inputs;
}

// [B, N, H, M] → [B, N, d]
Variable Attention::outward(const Variable& heads) const {
  if (!output_) return heads;
  return (*output_)(reshape(heads, {heads.size(0), heads.size(1), sizes_.H * sizes_.M}));
}

Variable Attention::operator()(Context& context, const Variable& x, const Lengths& lengths,
                               const Variable& memory) const {
  const Mechanism& mechanism = spec_.mechanism();
  require(!memory.defined() || mechanism.cross, "attention: {} cannot attend to a memory; use full",
          mechanism.name);
  AttentionCall call;
  call.causal = options_.causal;
  call.lengths = lengths.keys;
  call.query_lengths = lengths.queries;
  if (!memory.defined() && !lengths.queries.defined() && mechanism.masks.query_lengths) {
    call.query_lengths = lengths.keys;
  }
  call.dropout = context.rate(options_.dropout);
  call.random = context.random.next();
  call.layer = context.layer;
  call.depth = context.depth;
  call.layers = context.layers;
  call.training = context.training;
  return outward(attend(spec_, call, inputs_of(x, memory)));
}

Attention::State Attention::start(std::int64_t capacity, std::int64_t batch) const {
  const Mechanism& mechanism = spec_.mechanism();
  require(mechanism.decode != nullptr, "attention: {} cannot decode step by step", mechanism.name);
  require(options_.causal, "attention: only a causal layer can decode step by step");
  AttentionSizes sizes = sizes_;
  sizes.B = batch;
  DType dtype = DType::f32;
  if (!projections_.empty()) dtype = projections_[0].map.weight.value().dtype();
  return {mechanism.decode(spec_, sizes, dtype, capacity)};
}

Variable Attention::step(State& state, const Variable& x) const {
  std::vector<Tensor> values;
  for (const Variable& input : inputs_of(x, {})) values.push_back(input.value());
  return outward(Variable(state.decoding->step(values)));
}

}  // namespace weft::nn
