// The best rates of a device, measured: never a table of names.
#pragma once

#include <functional>

#include "runtime/device.h"
#include "runtime/dtype.h"

namespace weft::bench {

// The least number of runs and seconds; the fastest run counts. A single run is for tests, without
// warm-up.
struct Effort {
  int runs = 4;
  double seconds = 0.3;
};

// Seconds of the fastest run of f on the device: a ceiling is the best that was reached, and on a
// machine with other work the median is not.
double fastest(const std::function<void()>& f, Device device = {}, const Effort& effort = {});

// Floating-point operations a second of a product in f32 or bf16, as in large products: 2048³ on
// one thread of the CPU, 8192³ on a GPU.
double gemm_rate(Device device = {}, const Effort& effort = {}, DType type = DType::f32);

// Bytes a second, read and written, of a copy of 128 MiB, more than any cache holds.
double copy_rate(Device device = {}, const Effort& effort = {});

// Exponentials a second in f32, of numbers that stay in registers or the L1 cache.
double exp_rate(Device device = {}, const Effort& effort = {});

// All three, that of products in f32 or bf16; on the CPU with the current number of threads.
struct Ceilings {
  double gemm = 0, copy = 0, exp = 0;
};
Ceilings ceilings(Device device, const Effort& effort = {}, DType products = DType::f32);

}  // namespace weft::bench
