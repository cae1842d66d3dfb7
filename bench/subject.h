// What the attention benchmark times: a mechanism alone, in a layer, or in a stack of blocks; and
// its cost by the fact sheet. A length counts keys, and queries too unless Settings give their
// number.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autograd/variable.h"
#include "ops/attention/mechanism.h"

namespace weft::bench {

struct Settings {
  i64 batch = 1, heads = 8;
  i64 key_width = 64, value_width = 64;  // of a head
  i64 queries = 0;                       // of a second sequence; 0: one sequence for both
  bool causal = false;
  bool layer = false;  // x → projections → mechanism → output matrix; width heads · value_width
  bool core = false;   // for mega: its moving average and its attention, without maps and gates
  i64 blocks = 0;      // the number of transformer blocks: norms, such a layer, feed-forward
  i64 hidden = 0;      // of their feed-forward layer; 0: four times the width
  int threads = 1;
  double seconds = 1;  // least time of a measurement
  std::string precision = "f32";  // of inputs, outputs and their gradients; parameters are f32
  std::map<std::string, double> learnt = {};  // of learnt inputs: the value of all elements

  i64 width() const { return heads * value_width; }
  i64 feed_forward() const { return hidden > 0 ? hidden : 4 * width(); }
  i64 queries_at(i64 length) const { return queries > 0 ? queries : length; }
  // For a mechanism: a length counts positions, N and S its rows.
  AttentionSizes sizes(const Mechanism& mechanism, i64 length) const;
  // All settings in words, the same for the same settings: a part of the key of a row.
  std::string text() const;
};

// A mechanism, with its hand-written kernels or, with `reference`, with its definition in plain
// ops: for `full`, unfused attention that holds N × N.
struct Candidate {
  AttentionSpec spec;
  bool reference = false;

  std::string name() const { return spec.text() + (reference ? " (naive)" : ""); }
};

// Throws for a name in `settings.learnt` that is no learnt input of any of them.
void check_learnt(const std::vector<Candidate>& candidates, const Settings& settings);

// One forward and backward: forward() depends on `leaves`, which hold the gradients afterwards.
struct Subject {
  std::vector<Variable> leaves;
  std::function<Variable()> forward;
};
Subject subject(const Candidate& candidate, const Settings& settings, i64 length, Device device);

// By arithmetic, forward and backward together. In a layer or in blocks, the rest is estimated.
struct Expected {
  double operations = 0;  // additions and multiplications
  double exponentials = 0;
  bool at_most = false;    // learnt inputs may need fewer of both
  double moved_bytes = 0;  // least traffic to memory: inputs, output, gradients, what is saved
  double saved_bytes = 0;  // kept for backward
  double peak_bytes = 0;   // at one time, above the inputs
  double held_bytes = 0;   // beside them: the inputs, and the output's gradient
};
Expected expected(const Candidate& candidate, const Settings& settings, i64 length, Device device);

// Whether both operations and bytes grow linearly with the length, or slower, from `shorter` on.
bool stays_linear(const Candidate& candidate, const Settings& settings, Device device, i64 shorter,
                  i64 longer);

// Whether the mechanism always masks the future.
bool masks_future(const AttentionSpec& spec, const Settings& settings);

}  // namespace weft::bench
