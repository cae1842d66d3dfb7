// Filling lists by a rule, on a CUDA device: a thread for each row, and a block for each list of
// starts, for its prefix sum. For .cu files.
//
// Bound by latency: a row computes some integers for each of its edges, one after the other, and
// writes 12 bytes an edge. The longest list determines the time. Unmeasured.
#pragma once

#include "ops/attention/engines/lists/list_rule.h"
#include "runtime/cuda/loops.h"

namespace weft {

template <class Rule>
struct CountLine {
  RuledLists<Rule> ruled;
  __device__ void operator()(i64 call) const { ruled.count(call); }
};

template <class Rule>
struct FillLine {
  RuledLists<Rule> ruled;
  __device__ void operator()(i64 call) const { ruled.fill(call); }
};

inline constexpr unsigned sum_threads = 256;

// Each thread sums a range, then all ranges before it, then walks its range again.
template <class Rule>
__global__ void sum_starts(RuledLists<Rule> ruled) {
  __shared__ std::int32_t sums[sum_threads];
  std::int32_t* const starts = ruled.starts_of(blockIdx.x % 3, blockIdx.x / 3);
  const i64 all = ruled.size_of_starts(blockIdx.x % 3), own = (all + sum_threads - 1) / sum_threads;
  const i64 begin = std::min(all, threadIdx.x * own), end = std::min(all, begin + own);
  std::int32_t sum = 0;
  for (i64 line = begin; line < end; ++line) sum += starts[line + 1];
  sums[threadIdx.x] = sum;
  __syncthreads();
  sum = 0;
  for (unsigned thread = 0; thread < threadIdx.x; ++thread) sum += sums[thread];
  if (threadIdx.x == 0) starts[0] = 0;
  for (i64 line = begin; line < end; ++line) starts[line + 1] = sum += starts[line + 1];
}

template <class Rule>
void fill_lists(const char* name, const Cuda& device, const RuledLists<Rule>& ruled) {
  if (ruled.calls() == 0) return;
  for_elements(name, device, ruled.calls(), CountLine<Rule>{ruled});
  start(name, device, static_cast<unsigned>(3 * ruled.sheets()), sum_threads, 0, sum_starts<Rule>,
        ruled);
  for_elements(name, device, ruled.calls(), FillLine<Rule>{ruled});
}

}  // namespace weft
