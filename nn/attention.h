// An attention layer around any registered mechanism.
//
// The mechanism's fact sheet lists its inputs; the layer makes them:
//     projected inputs   columns of x W (+ b), the columns of one sequence in one product; or a
//                        map of several layers
//     sequences          x or the memory themselves
//     parameters         learnt here
//     drawn inputs       kept here, as buffers, beside the seed of what is drawn by length
//     bias               by position, if the options say so; otherwise from the caller
//     index              from the caller
// It rotates q and k by their positions if the options say so, and maps the output, [B, N, H, M]
// seen as [B, N, H·M], or [B, N, d'] of a block of another width, to the model's width. For `full`
// with E = M = d / H that is multi-head attention without biases (A. Vaswani et al., "Attention is
// all you need", NIPS 2017, arXiv 1706.03762, section 3.2.2).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "nn/layers.h"
#include "nn/position_bias.h"
#include "ops/attention/mechanism.h"

namespace weft::nn {

struct AttentionOptions {
  std::string mechanism = "full";  // a specification: name:option=value,…
  i64 width = 64;                  // d
  i64 heads = 8;                   // H
  i64 key_width = 0;               // E of a head; 0: width / heads
  i64 value_width = 0;             // M of a head; 0: width / heads
  bool causal = true;
  double dropout = 0;
  bool output_bias = false;
  i64 max_length = 0;  // N_max, for mechanisms and biases that learn by position; 0: none
  std::string position_bias = {};  // "alibi", "relative" (position_bias.h), or none
  bool rotary = false;             // q and k are rotated by their positions (ops/rotary)
};

// Throws, naming the mechanism, if it has no q and k of heads of an even width for rotary
// positions.
void check_rotary(const AttentionSpec& spec, const AttentionSizes& sizes);

// Which positions exist; undefined: all do. A query at or beyond its length gives 0 (and the
// output's bias, if there is one). If only the keys have lengths, these apply to the queries of
// self-attention too.
struct Lengths {
  Tensor keys;     // [B] i64
  Tensor queries;  // [B] i64
};

class Attention {
 public:
  explicit Attention(const AttentionOptions& options, DType dtype = DType::f32);

  // Inputs of the mechanism that the caller provides, by name: those of the roles index and bias.
  using Given = std::map<std::string, Variable>;

  // x [B, N, d] → [B, N, d]. With a memory [B, S, d], keys and values are computed from it; a
  // mechanism that takes keys before its queries (transformer-xl) wants x as the last N rows of it.
  // A penalty of the mechanism is added to the context.
  Variable operator()(Context& context, const Variable& x, const Lengths& lengths = {},
                      const Variable& memory = {}, const Given& given = {}) const;

  struct State {
    std::unique_ptr<DecodingState> decoding;
    i64 batch = 0;
    i64 positions = 0;  // seen so far
  };
  // `capacity`: the most positions that a growing state may keep. Throws if the mechanism cannot
  // decode or the layer is not causal.
  State start(i64 capacity, i64 batch = 1) const;
  // The n ≥ 1 positions after those seen so far: x [B, n, d] → [B, n, d], a constant: decoding
  // records nothing.
  Variable step(State& state, const Variable& x) const;

  const AttentionSpec& spec() const { return spec_; }
  const AttentionOptions& options() const { return options_; }
  // Whether the mechanism adds its input and normalises by itself (MEGA).
  bool owns_residual() const { return spec_.mechanism().owns_residual; }

  void each(const auto& visit) {
    for (Projection& projection : projections_) visit(projection.name, projection.map);
    for (Layers& several : layers_) visit(several.name, several.maps);
    for (Learnt& learnt : learnt_) visit(learnt.name, learnt.parameter);
    for (Drawn& drawn : drawn_) visit(drawn.name, drawn.buffer);
    visit("seed", seed_);
    visit("position_bias", position_bias_);
    visit("output", output_);
  }

 private:
  struct Projection {
    std::string name;
    Linear map;
  };
  struct Layers {  // of a projection with hidden layers
    std::string name;
    std::vector<Linear> maps;
  };
  struct Learnt {
    std::string name;
    Parameter parameter;
  };
  struct Drawn {
    std::string name;
    Buffer buffer;
  };
  // The source of one input of the mechanism: columns of a projection, or an entry of one of the
  // lists above.
  struct Source {
    std::size_t index = 0;
    i64 begin = 0, end = 0;
  };

  Source add(const AttentionInput& input, DType dtype);
  Source add_projection(const AttentionInput& input, DType dtype);
  Source add_layers(const AttentionInput& input, DType dtype);
  AttentionSizes sizes_over(const Variable& sequence) const;
  void project(const Variable& sequence, const std::vector<std::size_t>& wanted,
               std::vector<Variable>& inputs) const;
  Variable through_layers(std::size_t input, const Variable& sequence) const;
  std::vector<Variable> inputs_of(const Variable& x, const Variable& memory, const Given& given,
                                  i64 before) const;
  Variable outward(const Variable& out) const;
  Variable of_whole_blocks(const Variable& x) const;

  AttentionOptions options_;
  AttentionSpec spec_;
  AttentionSizes sizes_;    // for one position
  AttentionInputs inputs_;  // of the mechanism, for these sizes
  DType dtype_;
  std::vector<Projection> projections_;
  std::vector<Layers> layers_;
  std::vector<Learnt> learnt_;
  std::vector<Drawn> drawn_;
  Buffer seed_;  // of choices that are drawn by length; undefined if the mechanism has none
  std::optional<PositionBias> position_bias_;
  std::vector<Source> sources_;   // one for each input of the mechanism
  std::optional<Linear> output_;  // none after a block of the model's width
};

}  // namespace weft::nn
