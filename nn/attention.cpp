#include "nn/attention.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/dropout/mask.h"
#include "ops/linear/linear.h"
#include "ops/pointwise/pointwise.h"
#include "ops/rotary/rotary.h"
#include "ops/views/views.h"

namespace weft::nn {
namespace {

AttentionSizes sizes_of(const AttentionOptions& options) {
  require(options.width > 0 && options.heads > 0,
          "attention: wanted a width and heads, got {} and {}", options.width, options.heads);
  const auto of_head = [&](i64 given) {
    require(given >= 0, "attention: a head's width is 0, by default, or more, got {}", given);
    require(given > 0 || options.width % options.heads == 0,
            "attention: the width {} does not divide into {} heads; choose a multiple",
            options.width, options.heads);
    return given > 0 ? given : options.width / options.heads;
  };
  return {.H = options.heads,
          .E = of_head(options.key_width),
          .M = of_head(options.value_width),
          .d = options.width,
          .N_max = options.max_length,
          .causal = options.causal};
}

// Columns begin … end−1 of a matrix, or those elements of a vector.
Variable columns(const Variable& whole, i64 begin, i64 end) {
  const int axis = whole.value().rank() - 1;
  if (begin == 0 && end == whole.size(axis)) return whole;
  return slice(whole, axis, begin, end);
}

// Draws an integer that every floating type represents exactly.
void draw_seed(RandomKey key, const Tensor& target) {
  target.fill(static_cast<double>(key.words(0).word[0] >> 8));
}

std::uint64_t seed_of(const Buffer& buffer) {
  const double seed = buffer.value.item();
  require(seed >= 0 && seed < 0x1p63, "attention: wanted a whole number as its seed, got {}", seed);
  return static_cast<std::uint64_t>(seed);
}

// The inputs that rotary positions rotate.
bool is_turned(const AttentionInput& input) {
  return input.role == Role::projected && (input.name == "q" || input.name == "k");
}

}  // namespace

void check_rotary(const AttentionSpec& spec, const AttentionSizes& sizes) {
  std::string names;
  int turned = 0;
  for (const AttentionInput& input : attention_inputs(spec, sizes)) {
    if (input.role == Role::projected && !input.optional) {
      names += (names.empty() ? "" : ", ") + input.name;
    }
    turned += is_turned(input);
  }
  require(turned == 2,
          "attention: rotary positions rotate the inputs q and k, but {} takes {}; use full, or "
          "another encoding",
          spec.mechanism().name, names.empty() ? "none" : names);
  require(
      sizes.E % 2 == 0,
      "attention: rotary positions rotate pairs of features: a head has {}, wanted an even number",
      sizes.E);
}

Attention::Attention(const AttentionOptions& options, DType dtype)
    : options_(options), spec_(options.mechanism), sizes_(sizes_of(options)), dtype_(dtype) {
  const Mechanism& mechanism = spec_.mechanism();
  require(mechanism.rows.count == nullptr,
          "attention: {} attends between rows that are not positions, which no layer makes; use "
          "another mechanism, or `attend` over rows of your own",
          mechanism.name);
  require(!options.causal || mechanism.masks.causal, "attention: {} has no causal form",
          mechanism.name);
  require(!options.causal || has_causal_form(spec_),
          "attention: {} has a causal form with {} alone", mechanism.name,
          spec_.unmet(mechanism.causal_wants));
  require(options.causal || !mechanism.causal_only, "attention: {} has only a causal form",
          mechanism.name);
  check_dropout_rate("attention", options.dropout);
  inputs_ = attention_inputs(spec_, sizes_);
  while (!options.causal && !inputs_.empty() && inputs_.back().causal) inputs_.pop_back();
  for (const AttentionInput& input : inputs_) sources_.push_back(add(input, dtype));
  if (std::ranges::any_of(mechanism.choices, &AttentionChoice::by_length)) {
    seed_ = Buffer({1}, draw_seed, 0, dtype);
    seed_.value.fill(0);
    seed_.for_host = true;
  }
  if (options.rotary) check_rotary(spec_, sizes_);
  if (!options.position_bias.empty()) {
    require(mechanism.masks.bias, "attention: {} takes no bias; use full", mechanism.name);
    position_bias_.emplace(options.position_bias, options.heads, options.max_length, dtype);
  }
  if (mechanism.kind != Kind::block) {
    output_.emplace(sizes_.H * sizes_.M, options.width, options.output_bias, dtype);
  } else if (const Shape out = output_shape(spec_, sizes_); out.back() != options.width) {
    output_.emplace(out.back(), options.width, options.output_bias, dtype);
  }
}

Attention::Source Attention::add(const AttentionInput& input, DType dtype) {
  require(
      input.axes.find("N_max") == std::string::npos || options_.max_length > 0 || input.optional,
      "attention: {} has parameters {} [{}] by position; give the longest sequence (max_length)",
      spec_.mechanism().name, input.name, input.axes);
  switch (input.role) {
    case Role::projected:
      if (input.optional) break;
      return input.through.empty() ? add_projection(input, dtype) : add_layers(input, dtype);
    case Role::parameter: {
      Parameter parameter(input.shape, input.weight, dtype);
      parameter.bounds = input.bounds;
      learnt_.push_back({input.name, parameter});
      return {learnt_.size() - 1};
    }
    case Role::drawn:
      drawn_.push_back({input.name, Buffer(input.shape, input.draw, input.redraw, dtype)});
      return {drawn_.size() - 1};
    case Role::sequence:
    case Role::index:
    case Role::bias:
      break;
  }
  return {};
}

// Appends the columns of `input` to the projection of its name, or creates that projection.
Attention::Source Attention::add_projection(const AttentionInput& input, DType dtype) {
  const std::string& name = input.matrix.empty() ? input.name : input.matrix;
  const i64 wanted = input.shape.count();
  const auto found = std::find_if(projections_.begin(), projections_.end(),
                                  [&](const Projection& p) { return p.name == name; });
  const auto index = static_cast<std::size_t>(found - projections_.begin());
  const i64 begin = found == projections_.end() ? 0 : found->map.weight.value().size(1);
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

// A map x → … → ReLU(· W + b) → · W (+ b).
Attention::Source Attention::add_layers(const AttentionInput& input, DType dtype) {
  Layers several{input.name, {}};
  i64 in = options_.width;
  for (const i64 width : input.through) {
    several.maps.emplace_back(std::exchange(in, width), width, true, dtype);
  }
  several.maps.emplace_back(in, input.shape.count(), input.biased, dtype);
  for (Linear& map : several.maps) map.weight.initializer = input.weight;
  several.maps.back().bias.initializer = input.bias;
  layers_.push_back(std::move(several));
  return {layers_.size() - 1};
}

AttentionSizes Attention::sizes_over(const Variable& sequence) const {
  AttentionSizes sizes = sizes_;
  sizes.B = sequence.size(0);
  sizes.N = sizes.S = sequence.size(1);
  return sizes;
}

// Computes the `wanted` inputs, all of one sequence, as views of one product.
void Attention::project(const Variable& sequence, const std::vector<std::size_t>& wanted,
                        std::vector<Variable>& inputs) const {
  if (wanted.empty()) return;
  std::vector<Source> runs;  // adjacent columns of one matrix are one run
  std::vector<i64> widths;
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
  const AttentionInputs sheets = attention_inputs(spec_, sizes_over(sequence));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    inputs[wanted[i]] = reshape(parts[i], sheets[wanted[i]].shape);
  }
}

Variable Attention::through_layers(std::size_t input, const Variable& sequence) const {
  Variable h = sequence;
  const std::vector<Linear>& maps = layers_[sources_[input].index].maps;
  for (std::size_t i = 0; i < maps.size(); ++i) h = maps[i](i == 0 ? h : relu(h));
  return reshape(h, attention_inputs(spec_, sizes_over(sequence))[input].shape);
}

// The mechanism's inputs, in its order, for positions after `before` others. Without a memory all
// of them are computed from x.
std::vector<Variable> Attention::inputs_of(const Variable& x, const Variable& memory,
                                           const Given& given, i64 before) const {
  const auto check = [&](const Variable& sequence) {
    require(sequence.value().rank() == 3 && sequence.size(2) == options_.width,
            "attention: wanted a sequence [B, N, {}], got {}", options_.width, sequence.shape());
  };
  check(x);
  if (memory.defined()) check(memory);
  std::vector<Variable> inputs(inputs_.size());
  std::vector<std::size_t> from_x, from_memory;
  for (const auto& [name, value] : given) {
    const auto found = std::ranges::find(inputs_, name, &AttentionInput::name);
    const bool handed =
        found != inputs_.end() && (found->role == Role::index || found->role == Role::bias);
    require(handed, "attention: {} takes no '{}' from its caller", spec_.mechanism().name, name);
    inputs[static_cast<std::size_t>(found - inputs_.begin())] = value;
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const AttentionInput& sheet = inputs_[i];
    const bool elsewhere = memory.defined() && sheet.side == Side::reference;
    const Variable& sequence = elsewhere ? memory : x;
    if (sheet.role == Role::drawn) {
      inputs[i] = drawn_[sources_[i].index].buffer.value;
    } else if (sheet.role == Role::bias && position_bias_) {
      require(!inputs[i].defined(),
              "attention: a bias was given in addition to that of the options");
      const i64 keys = memory.defined() ? memory.size(1) : before + x.size(1);
      inputs[i] = (*position_bias_)(x.value().device(), before, x.size(1), keys);
    } else if (sheet.optional && sheet.role != Role::parameter) {
      continue;
    } else if (sheet.role == Role::projected && !sheet.through.empty()) {
      inputs[i] = through_layers(i, sequence);
    } else if (sheet.role == Role::projected) {
      (elsewhere ? from_memory : from_x).push_back(i);
    } else if (sheet.role == Role::sequence) {
      inputs[i] = sequence;
    } else if (sheet.role == Role::parameter) {
      inputs[i] = learnt_[sources_[i].index].parameter;
    }
  }
  project(x, from_x, inputs);
  if (memory.defined()) project(memory, from_memory, inputs);
  for (std::size_t i = 0; options_.rotary && i < inputs_.size(); ++i) {
    if (!is_turned(inputs_[i])) continue;
    const bool elsewhere = memory.defined() && inputs_[i].side == Side::reference;
    inputs[i] = rotary(inputs[i], elsewhere ? 0 : before);
  }
  return inputs;
}

// [B, N, H, M], or [B, N, d'] of a block → [B, N, d]
Variable Attention::outward(const Variable& out) const {
  if (!output_) return out;
  return (*output_)(out.value().rank() == 3
                        ? out
                        : reshape(out, {out.size(0), out.size(1), sizes_.H * sizes_.M}));
}

Variable Attention::operator()(Context& context, const Variable& x, const Lengths& lengths,
                               const Variable& memory, const Given& given) const {
  const Mechanism& mechanism = spec_.mechanism();
  require(!memory.defined() || mechanism.cross || mechanism.earlier_keys,
          "attention: {} cannot attend to a memory; use full", mechanism.name);
  AttentionCall call;
  call.causal = options_.causal;
  call.lengths = lengths.keys;
  call.query_lengths = lengths.queries;
  if (!memory.defined() && !lengths.queries.defined() && mechanism.masks.query_lengths) {
    call.query_lengths = lengths.keys;
  }
  call.dropout = context.rate(options_.dropout);
  call.random = context.random.next();
  call.training = context.training;
  if (seed_.defined()) call.seed = seed_of(seed_);
  call.layer = context.layer;
  call.depth = context.depth;
  call.layers = context.layers;
  const bool follows = memory.defined() && mechanism.earlier_keys;
  const i64 before = follows ? memory.size(1) - x.size(1) : 0;
  const std::vector<Variable> inputs = inputs_of(of_whole_blocks(x), memory, given, before);
  if (context.attending) context.attending(spec_, call, inputs);
  const Attended attended = attend(spec_, call, inputs);
  if (attended.penalty.defined()) context.penalties.push_back(attended.penalty);
  const i64 N = x.size(1);
  return outward(attended.out.size(1) == N ? attended.out : slice(attended.out, 1, 0, N));
}

// x, padded with zeros if a causal mechanism needs whole blocks; the padding is behind all
// positions.
Variable Attention::of_whole_blocks(const Variable& x) const {
  const std::string& option = spec_.mechanism().multiple_of;
  const i64 size = option.empty() || !options_.causal ? 1 : spec_.integer(option);
  if (x.value().rank() != 3 || x.size(1) % size == 0) return x;
  const Shape missing{x.size(0), size - x.size(1) % size, x.size(2)};
  const Variable parts[] = {x, Tensor::zeros(missing, x.value().dtype(), x.value().device())};
  return concatenate(parts, 1);
}

Attention::State Attention::start(i64 capacity, i64 batch) const {
  const Mechanism& mechanism = spec_.mechanism();
  require(mechanism.decode != nullptr, "attention: {} cannot decode step by step", mechanism.name);
  require(options_.causal, "attention: only a causal layer can decode step by step");
  AttentionSizes sizes = sizes_;
  sizes.B = batch;
  return {mechanism.decode(spec_, sizes, dtype_, capacity), batch};
}

Variable Attention::step(State& state, const Variable& x) const {
  require(state.decoding != nullptr, "attention: a state to decode with comes from start()");
  require(x.value().rank() == 3 && x.size(0) == state.batch,
          "attention: the state was started for a batch of {}, got {}", state.batch, x.shape());
  const Tape::Pause pause;
  std::vector<Tensor> values;
  for (const Variable& input : inputs_of(x, {}, {}, state.positions)) {
    values.push_back(input.value());
  }
  state.positions += x.size(1);
  return outward(Variable(state.decoding->step(values)));
}

}  // namespace weft::nn
