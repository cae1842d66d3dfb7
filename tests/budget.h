// Whose tests take how long: the processor time of a test program goes to the mechanism that is
// tested, by name. ./weft test sums it over all programs and holds it against the budgets.
#pragma once

#include <string>

namespace weft {

// From now on; "" for what is nobody's alone.
void work_for(const std::string& mechanism);
// A line for each, `weft-time <mechanism> <seconds>`.
void print_times();

}  // namespace weft
