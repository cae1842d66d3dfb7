// Shared by all benchmarks: a clock, repeated runs, and facts about the machine and the build.
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "apps/command_line/device_option.h"
#include "bench/statistics.h"
#include "runtime/device.h"

namespace weft::bench {

// A measurement and what it is of: its keys keep their order.
using Row = nlohmann::ordered_json;

// Seconds since some fixed moment. Measurements get it as an argument; tests pass one that they
// set.
using Clock = std::function<double()>;
double steady_seconds();
// The processor time of this process: on a busy machine the fairer measure of one thread.
double processor_seconds();

// run_main() of a benchmark: without the environment variables that can pin OpenBLAS to the core
// type or the cache of another processor.
int run_bench(const char* name, int (*f)(int, char**), int argc, char** argv);

// Calls f `warm_up` times unmeasured, then until at least `runs` runs and `seconds` seconds have
// passed. Returns the quantiles of a call's time, in seconds.
Quantiles measure(const std::function<void()>& f, int warm_up, int runs, double seconds,
                  const Clock& clock = steady_seconds);

// version, commit, ISA, library, processor, threads, device, and whether the tests of this library
// passed (bench/stamp.h): a part of every row.
Row machine(Device device = {});

}  // namespace weft::bench
