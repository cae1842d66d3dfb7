// Context::recompute, for the blocks of models.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "autograd/recompute.h"
#include "nn/context.h"

namespace weft::nn {

// block(context, x). If the context asks for it, x alone is kept for backward, which calls the
// block again with the context that it has now: it draws the same random numbers. The penalties
// that it adds are results beside its value.
template <class Block>
Variable perhaps_recomputed(Context& context, const Variable& x, const Block& block) {
  if (!context.recompute) return block(context, x);
  Context start = context;
  start.penalties.clear();
  const auto drawn = std::make_shared<RandomStreams>(start.random);
  const auto run = [start, drawn, block](std::span<const Variable> inputs) {
    Context own = start;
    std::vector<Variable> results = {block(own, inputs[0])};
    results.insert(results.end(), own.penalties.begin(), own.penalties.end());
    *drawn = own.random;
    return results;
  };
  const std::vector<Variable> results = recompute(run, std::array{x});
  context.random = *drawn;
  context.penalties.insert(context.penalties.end(), results.begin() + 1, results.end());
  return results[0];
}

}  // namespace weft::nn
