// Repeated forward and backward passes of a subject: their times, and their memory.
#pragma once

#include <functional>
#include <vector>

#include "bench/measure.h"
#include "bench/subject.h"

namespace weft::bench {

struct Passes {
  std::vector<double> forward,
      backward;                 // seconds of each run; the first run, unmeasured, warms up
  std::size_t saved_bytes = 0;  // kept between forward and backward, besides inputs and output
  std::size_t peak_bytes = 0;   // at one time, above inputs and the output's gradient
};

// Thrown by a measurement that `stop` ended.
struct Interrupted {};

struct PassLimits {
  int runs = 3;             // at least
  double seconds = 1;       // at least
  double most_seconds = 0;  // with the warm-up; beyond it at least one run is measured; 0: no limit
};

// Runs until both minima are reached, or the limit. Throws Interrupted as soon as a run ends and
// stop() returns true.
Passes measure_passes(const Subject& subject, Device device, const PassLimits& limits,
                      const Clock& clock, const std::function<bool()>& stop);

}  // namespace weft::bench
