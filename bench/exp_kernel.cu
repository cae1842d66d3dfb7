// One thread a number, which stays in a register.
#include "bench/exp_kernel.h"
#include "runtime/cuda/stream.h"

namespace weft::bench {
namespace {

constexpr unsigned threads = 256;

__global__ void exp_kernel(std::int64_t count, std::int64_t rounds, float* values) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float x = values[i];
  for (std::int64_t round = 0; round < rounds; ++round) x = expf(-x);
  values[i] = x;
}

}  // namespace

void repeat_exp(const Cuda& device, float* values, std::int64_t count, std::int64_t rounds) {
  const auto blocks = static_cast<unsigned>((count + threads - 1) / threads);
  start("exp_rate", device, blocks, threads, 0, exp_kernel, count, rounds, values);
}

}  // namespace weft::bench
