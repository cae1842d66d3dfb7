// What a device can do at best, measured: never a table of names.
#pragma once

#include "runtime/device.h"

namespace weft::bench {

// The fastest of so many runs and seconds counts. One run is for tests: it is not even warmed up.
struct Effort {
  int runs = 4;
  double seconds = 0.3;
};

// Floating-point operations a second of a product in f32, as large products run: 2048³ on one
// thread of the CPU, 8192³ on a GPU.
double gemm_rate(Device device = {}, const Effort& effort = {});

// Bytes a second, read and written, of a copy of 128 MiB, more than any cache holds.
double copy_rate(Device device = {}, const Effort& effort = {});

// Exponentials a second in f32, of numbers that stay in registers or the first-level cache.
double exp_rate(Device device = {}, const Effort& effort = {});

// All three; on the CPU with the threads that are set.
struct Ceilings {
  double gemm = 0, copy = 0, exp = 0;
};
Ceilings ceilings(Device device, const Effort& effort = {});

}  // namespace weft::bench
