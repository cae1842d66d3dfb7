// A batch in one piece and in two halves, for what must not depend on how a batch is cut.
#pragma once

#include "ops/views/views.h"
#include "tests/check.h"

namespace weft {

// f(inputs, first, end) is the output of the examples first … end − 1, which it cuts out of the
// inputs itself, with keys whose first_example is `first`. Checks that both halves together have
// the output and the gradients of the whole batch.
template <class F>
void check_halves(const F& f, const std::vector<Tensor>& inputs, i64 examples) {
  const auto whole = [&](std::span<const Variable> in) {
    return std::vector<Variable>{f(in, 0, examples)};
  };
  const auto halves = [&](std::span<const Variable> in) {
    const Variable both[] = {f(in, 0, examples / 2), f(in, examples / 2, examples)};
    return std::vector<Variable>{concatenate(both, 0)};
  };
  check_close(run(halves, inputs), run(whole, inputs), tolerance::backward_f64);
}

}  // namespace weft
