// The summary of one device's rows: exponents of time and memory, whether they agree with the fact
// sheets, and from which length a mechanism is faster than fused full attention.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/results.h"
#include "bench/statistics.h"

namespace weft::bench {

// Time is that of forward and backward together, in milliseconds; memory the peak above the inputs,
// in bytes.
struct Curve {
  std::string name;
  std::vector<Row> rows = {};
  std::optional<Exponent> time = {}, memory = {};  // over the upper half of the lengths
  std::optional<Exponent> expected_time = {},
                          expected_memory = {};  // by the fact sheet, over the same lengths
  bool time_disagrees = false, memory_disagrees = false;
  Crossover both = {},
            forward = {};  // against the baseline: forward and backward, and forward alone
};

// The allowed difference of measured exponents from those of the fact sheet, besides two standard
// errors: longer sequences no longer fit in caches.
constexpr double exponent_tolerance = 0.15;
inline const std::string baseline = "full";

// One curve a name, in the order of the rows (rows_of_run).
std::vector<Curve> curves_of(const std::vector<Row>& rows);

// A curve a line, for display.
std::string table_of(const std::vector<Curve>& curves);

// For bench/plot: the device and each curve with its points, exponents and crossovers. `lines` are
// all lines of the run, including cuts and errors.
Row summary_of(const std::vector<Row>& lines, const Row& identity);

}  // namespace weft::bench
