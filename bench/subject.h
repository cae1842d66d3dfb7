// What the attention benchmark times: a mechanism alone, in a layer, or in a stack of blocks; and
// what the fact sheet says of it. A length counts keys, and queries too unless Settings say how
// many of those there are.
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
  i64 queries = 0;                       // over a second sequence of keys; 0: one sequence has both
  bool causal = false;
  bool layer = false;  // x → projections → mechanism → output matrix; width heads · value_width
  bool core = false;   // of mega: its moving average and its attention, without maps and gates
  i64 blocks = 0;      // so many transformer blocks: norms, such a layer, feed-forward
  i64 hidden = 0;      // of their feed-forward layer; 0: four times the width
  int threads = 1;
  double seconds = 1;  // least time of a measurement
  std::map<std::string, double> learnt = {};  // what all of a learnt input is, by its name

  i64 width() const { return heads * value_width; }
  i64 feed_forward() const { return hidden > 0 ? hidden : 4 * width(); }
  i64 queries_at(i64 length) const { return queries > 0 ? queries : length; }
  // Of a mechanism: a length counts positions, N and S its rows.
  AttentionSizes sizes(const Mechanism& mechanism, i64 length) const;
  // All of it in words, the same for the same settings: a part of the key of a row.
  std::string text() const;
};

// A mechanism, by its hand-written kernels or, with `reference`, by its definition in plain ops:
// for `full`, attention that holds N × N, as unfused ones do.
struct Candidate {
  AttentionSpec spec;
  bool reference = false;

  std::string name() const { return spec.text() + (reference ? " (naive)" : ""); }
};

// One forward and backward: forward() is of `leaves`, which hold the gradients afterwards.
struct Subject {
  std::vector<Variable> leaves;
  std::function<Variable()> forward;
};
Subject subject(const Candidate& candidate, const Settings& settings, i64 length, Device device);

// By arithmetic, forward and backward together. In a layer or in blocks, what surrounds the
// mechanism is estimated.
struct Expected {
  double operations = 0;  // additions and multiplications
  double exponentials = 0;
  double moved_bytes = 0;  // that must cross the memory: inputs, output, gradients, what is saved
  double saved_bytes = 0;  // kept for backward
  double peak_bytes = 0;   // at once, above the inputs
  double held_bytes = 0;   // beside them: the inputs, and the output's gradient
};
Expected expected(const Candidate& candidate, const Settings& settings, i64 length, Device device);

// Whether both operations and bytes grow as the length does, or slower, from `shorter` on.
bool stays_linear(const Candidate& candidate, const Settings& settings, Device device, i64 shorter,
                  i64 longer);

// The mechanism always masks, asked or not.
bool masks_future(const AttentionSpec& spec, const Settings& settings);

}  // namespace weft::bench
