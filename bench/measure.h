// What every benchmark measures with: a clock, repeated runs, and what the machine and the build
// are.
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "apps/command_line/device_option.h"
#include "bench/statistics.h"
#include "runtime/device.h"

namespace weft::bench {

// Seconds since some fixed moment. Whoever measures is given one; tests give one that they set.
using Clock = std::function<double()>;
double steady_seconds();
// The processor's time that this process has taken: on a busy machine the fairer measure of one
// thread.
double processor_seconds();

// Environment variables can pin OpenBLAS to the core or the cache of another processor, and a
// library reads them when it is loaded: the program starts itself again without them.
void drop_library_pins(char** argv);

// main() of a benchmark: without those, and with what f throws as one line and exit status 2.
int run_main(const char* name, int (*f)(int, char**), int argc, char** argv);

// Calls f `warm_up` times unmeasured, then until `runs` runs and `seconds` seconds have passed,
// whichever comes later. The times of a call, in seconds.
Quantiles measure(const std::function<void()>& f, int warm_up, int runs, double seconds,
                  const Clock& clock = steady_seconds);

// version, commit, ISA, library, processor, threads, device, and whether the tests of this library
// passed (bench/stamp.h): in every row.
nlohmann::ordered_json machine(Device device = {});

}  // namespace weft::bench
