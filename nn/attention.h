// An attention layer around any registered mechanism.
//
// The mechanism's fact sheet says what it wants; the layer makes it:
//     projected inputs   columns of x W (+ b), the columns of one sequence in one product
//     sequences          x or the memory themselves
//     parameters         learnt here
// and maps what comes out, [B, N, H, M] seen as [B, N, H·M], to the model's width. For `full` with
// E = M = d / H that is multi-head attention (A. Vaswani et al., "Attention is all you need",
// NIPS 2017, arXiv 1706.03762, section 3.2.2) without biases.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nn/layers.h"
#include "ops/attention/mechanism.h"

namespace weft::nn {

struct AttentionOptions {
  std::string mechanism = "full";  // a specification: name:option=value,…
  std::int64_t width = 64;         // d
  std::int64_t heads = 8;          // H
  std::int64_t key_width = 0;      // E of a head; 0: width / heads
  std::int64_t value_width = 0;    // M of a head; 0: width / heads
  bool causal = true;
  double dropout = 0;
  bool output_bias = false;
};

// Which positions exist; undefined: all do. A query at or past its length gives 0 (and the output's
// bias, where there is one); where only the keys have lengths, those count for the queries of
// self-attention too.
struct Lengths {
  Tensor keys;     // [B] i64
  Tensor queries;  // [B] i64
};

class Attention {
 public:
  explicit Attention(const AttentionOptions& options, DType dtype = DType::f32);

  // x [B, N, d] → [B, N, d]. With a memory [B, S, d], keys and values come from there.
  Variable operator()(Context& context, const Variable& x, const Lengths& lengths = {},
                      const Variable& memory = {}) const;

  struct State {
    std::unique_ptr<DecodingState> decoding;
  };
  // `capacity`: the most positions that a mechanism whose state grows may keep. Throws where the
  // mechanism cannot decode or the layer is not causal.
  State start(std::int64_t capacity, std::int64_t batch = 1) const;
  Variable step(State& state, const Variable& x) const;  // x [B, 1, d] → [B, 1, d]

  const AttentionSpec& spec() const { return spec_; }
  const AttentionOptions& options() const { return options_; }

  void each(const auto& visit) {
    for (Projection& projection : projections_) visit(projection.name, projection.map);
    for (Learnt& learnt : learnt_) visit(learnt.name, learnt.parameter);
    visit("output", output_);
  }

 private:
  struct Projection {
    std::string name;
    Linear map;
  };
  struct Learnt {
    std::string name;
    Parameter parameter;
  };
  // Where an input of the mechanism comes from: columns of a projection, or what is learnt here.
  struct Source {
    std::size_t index = 0;
    std::int64_t begin = 0, end = 0;
  };

  Source add_projection(const AttentionInput& input, DType dtype);
  void project(const Variable& sequence, const std::vector<std::size_t>& wanted,
               std::vector<Variable>& inputs) const;
  std::vector<Variable> inputs_of(const Variable& x, const Variable& memory) const;
  Variable outward(const Variable& heads) const;

  AttentionOptions options_;
  AttentionSpec spec_;
  AttentionSizes sizes_;  // of one position
  std::vector<Projection> projections_;
  std::vector<Learnt> learnt_;
  std::vector<Source> sources_;   // one for each input of the mechanism
  std::optional<Linear> output_;  // none behind a mechanism that is a block of its own
};

}  // namespace weft::nn
