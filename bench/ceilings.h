// The best rates of a device, measured: never a table of names.
#pragma once

#include "runtime/device.h"

namespace weft::bench {

// The least number of runs and seconds; the fastest run counts. A single run is for tests, without
// warm-up.
struct Effort {
  int runs = 4;
  double seconds = 0.3;
};

// Floating-point operations a second of a product in f32, as in large products: 2048³ on one thread
// of the CPU, 8192³ on a GPU.
double gemm_rate(Device device = {}, const Effort& effort = {});

// Bytes a second, read and written, of a copy of 128 MiB, more than any cache holds.
double copy_rate(Device device = {}, const Effort& effort = {});

// Exponentials a second in f32, of numbers that stay in registers or the L1 cache.
double exp_rate(Device device = {}, const Effort& effort = {});

// All three; on the CPU with the current number of threads.
struct Ceilings {
  double gemm = 0, copy = 0, exp = 0;
};
Ceilings ceilings(Device device, const Effort& effort = {});

}  // namespace weft::bench
