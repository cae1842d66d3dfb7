// What a forward pass carries from module to module besides its tensors.
#pragma once

#include "runtime/random.h"

namespace weft {

struct Context {
  bool training;
  RandomStreams random;      // whoever draws takes the next key
  int layer = 0, depth = 0;  // which block runs, and how often it ran before in this pass
  int layers = 1;            // how many times a block runs in this pass

  Context(bool training, std::uint64_t seed, std::uint32_t step,
          const std::uint32_t* step_at = nullptr)
      : training(training), random(seed, step, step_at) {}
  static Context evaluation() { return {false, 0, 0}; }

  // A dropout rate, which counts in training only.
  double rate(double rate) const { return training ? rate : 0; }
};

}  // namespace weft
