// The entrants of a run of the attention benchmark: mechanisms of the registry, full attention that
// holds N × N, and PyTorch's forms of them if it is installed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/ceilings.h"
#include "bench/curves.h"

namespace weft::bench {

struct Field {
  Settings settings;
  std::vector<std::string> attention;  // specifications; empty: all, and the baselines
  std::vector<i64> lengths;            // ascending; empty: a sensible range
  bool reference = false;              // `attention` by its definition in plain ops
  bool peers = true;                   // PyTorch among the baselines
  bool every_peer = false;             // PyTorch beside every mechanism
  std::string python;                  // with PyTorch; empty: python3, then /usr/bin/python3
  double row_seconds = 0;              // most time of a row; 0: no limit
};

using Say = std::function<void(const std::string&)>;  // called for each exclusion

// The mechanisms. Throws if one that was named does not exist or cannot do what was asked.
std::vector<Candidate> candidates_of(const Field& field, const Say& say);

// The entrants for them, each followed by its peers, on this device, whose ceilings are in each row
// beside the rates. `stop` ends a measurement.
std::vector<Entrant> entrants_of(const std::vector<Candidate>& candidates, const Field& field,
                                 Device device, const Ceilings& best,
                                 const std::function<bool()>& stop, const Say& say);

}  // namespace weft::bench
