// The learning rate against the step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

#include "runtime/error.h"
#include "runtime/types.h"

namespace weft {

// Warm-up rises linearly to `rate` over the first `warmup` steps. From there to step `steps` the
// rate stays (constant), or falls to `last` along half a cosine (I. Loshchilov, F. Hutter, "SGDR",
// ICLR 2017, arXiv 1608.03983, eq. 5) or a straight line; after that it stays `last`.
struct Schedule {
  enum Kind { constant, cosine, linear } kind = constant;
  double rate = 1;
  i64 warmup = 0, steps = 0;
  double last = 0;

  // The rate of step 0, 1, …
  double at(i64 step) const {
    if (step < warmup) return rate * static_cast<double>(step + 1) / static_cast<double>(warmup);
    if (kind == constant) return rate;
    const auto span = static_cast<double>(std::max<i64>(1, steps - warmup));
    const double progress = std::min(1.0, static_cast<double>(step - warmup) / span);
    const double share =
        kind == cosine ? (1 + std::cos(std::numbers::pi * progress)) / 2 : 1 - progress;
    return last + (rate - last) * share;
  }
};

inline Schedule::Kind schedule_kind(const std::string& name) {
  if (name == "constant") return Schedule::constant;
  if (name == "cosine") return Schedule::cosine;
  if (name == "linear") return Schedule::linear;
  fail("schedule: wanted constant, cosine or linear, got '{}'", name);
}

}  // namespace weft
