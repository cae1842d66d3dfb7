// A thread computes one number, in a register.
#include "bench/exp_kernel.h"
#include "runtime/cuda/stream.h"

namespace weft::bench {
namespace {

constexpr unsigned threads = 256;

__global__ void exp_kernel(i64 count, i64 rounds, float* values) {
  const i64 i = i64{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float x = values[i];
  for (i64 round = 0; round < rounds; ++round) x = expf(-x);
  values[i] = x;
}

}  // namespace

void repeat_exp(const Cuda& device, float* values, i64 count, i64 rounds) {
  const auto blocks = static_cast<unsigned>((count + threads - 1) / threads);
  start("exp_rate", device, blocks, threads, 0, exp_kernel, count, rounds, values);
}

}  // namespace weft::bench
