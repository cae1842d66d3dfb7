// What a forward pass passes from module to module besides its tensors.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "autograd/variable.h"
#include "ops/pointwise/pointwise.h"
#include "runtime/random.h"

namespace weft {

class AttentionSpec;
struct AttentionCall;

struct Context {
  bool training;
  RandomStreams random;             // every draw takes the next key
  int layer = 0, depth = 0;         // the block that runs, and how often it has run in this pass
  int layers = 1;                   // how often a block runs in this pass
  std::vector<Variable> penalties;  // terms of the loss, [] each, that layers added
  // The blocks of a model keep their input alone for backward, where they run again
  // (recomputed.h). The model must then outlive the tape.
  bool recompute = false;
  // If set, is called with every attention's call before it runs; maps are made from it.
  std::function<void(const AttentionSpec&, const AttentionCall&, std::span<const Variable> inputs)>
      attending = {};

  Context(bool training, std::uint64_t seed, std::uint32_t step,
          const std::uint32_t* step_at = nullptr, std::int64_t first_example = 0)
      : training(training), random(seed, step, step_at, first_example) {}
  static Context evaluation() { return {false, 0, 0}; }

  // Their sum; undefined if there are none.
  Variable penalty() const {
    Variable sum;
    for (const Variable& term : penalties) sum = sum.defined() ? add(sum, term) : term;
    return sum;
  }

  // A dropout rate, 0 outside of training.
  double rate(double rate) const { return training ? rate : 0; }
};

}  // namespace weft
