// The processor time of tests by mechanism: a test program attributes its time to the mechanism
// that is tested, by name. ./weft test sums it over all programs and compares it with the budgets.
#pragma once

#include <string>

namespace weft {

// From now on; "" for time of no single mechanism.
void work_for(const std::string& mechanism);
// Prints a line for each, `weft-time <mechanism> <seconds>`.
void print_times();

}  // namespace weft
