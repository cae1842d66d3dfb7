// What every benchmark measures with: medians on one steady clock, the machine's GEMM rate, and what
// the machine and the build are.
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/device.h"

namespace weft::bench {

// An environment variable can pin OpenBLAS to a slower core, and a library reads it when it is
// loaded: the program starts itself again without it.
void drop_library_pins(char** argv);

// main() of a benchmark: without those, and with what f throws as one line and exit status 2.
int run_main(const char* name, int (*f)(int, char**), int argc, char** argv);

struct Times {
  double median = 0, p10 = 0, p90 = 0;  // seconds
  double cpu = 0;  // median of the seconds of processor that this process took: on a busy machine
                   // the fairer measure of one thread
};

// Calls f `warm_up` times unmeasured, then until `runs` runs and `seconds` seconds have passed,
// whichever comes later.
Times measure(const std::function<void()>& f, int warm_up, int runs, double seconds);

// Waits until the device has done what it was told.
void wait_for(Device device);

// Floating-point operations a second of a product in f32, as large products run: 2048³ on one thread of
// the CPU, 8192³ on a GPU.
double gemm_rate(Device device = {});

// version, ISA, library, threads, device: in every row.
nlohmann::ordered_json machine(Device device = {});

}  // namespace weft::bench
