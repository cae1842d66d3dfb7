// A pass of a radix sort, by a block: a list is brought into the order of eight bits of its keys;
// equal ones keep theirs.
//
// Each warp has a stretch of the list and a count of its own for each digit. It goes through its
// stretch 32 neighbours at a time, among which lanes of the same digit find each other and the
// first of them counts for all. A second time through, the next of a digit goes behind all lower
// digits, and behind those of the same digit in the stretches before and so far in its own.
//
// The digits are read twice, and whatever else `put` moves once. A kilobyte of shared memory for
// each warp: bin t of all warps is thread t's between the two ways, so that no bank has a conflict.
#pragma once

#include "runtime/cuda/loops.h"

namespace weft {

constexpr unsigned radix_bits = 8, radix_bins = 1 << radix_bits;

// The sum of x over the threads of a block before this one.
template <unsigned threads>
__device__ std::uint32_t sum_before(std::uint32_t x) {
  __shared__ std::uint32_t of_warp[threads / 32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  std::uint32_t sum = x;
  for (unsigned by = 1; by < 32; by *= 2) {
    const std::uint32_t left = __shfl_up_sync(0xffffffffu, sum, by);
    if (lane >= by) sum += left;
  }
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  for (unsigned w = 0; w < warp; ++w) sum += of_warp[w];
  return sum - x;
}

// Calls put(i, rank) for each i < size, with the rank of i's digit_of(i) < 256. Begins with a
// barrier; all threads of the block have to come.
template <unsigned threads, class DigitOf, class Put>
__device__ void radix_pass(std::uint32_t size, const DigitOf& digit_of, const Put& put) {
  static_assert(threads >= radix_bins);
  constexpr unsigned warps = threads / 32;
  __shared__ std::uint32_t counts[warps][radix_bins];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, bin = threadIdx.x;
  const std::uint32_t stretch = (size + threads - 1) / threads * 32, begin = stretch * warp;
  const std::uint32_t end = begin + stretch < size ? begin + stretch : size;
  std::uint32_t* const own = counts[warp];
  // Calls f(i, digit, lanes of the same digit that come first) for the warp's stretch, and counts.
  const auto each = [&](const auto& f) {
    for (std::uint32_t i = begin + lane; i < end + lane; i += 32) {
      const unsigned digit = i < end ? digit_of(i) : radix_bins;
      const unsigned peers = __match_any_sync(0xffffffffu, digit);
      const int before = __popc(peers & ((1u << lane) - 1));
      if (i < end) f(i, digit, before);
      __syncwarp();
      if (i < end && before == 0) own[digit] += __popc(peers);
      __syncwarp();
    }
  };
  __syncthreads();
  for (unsigned w = 0; bin < radix_bins && w < warps; ++w) counts[w][bin] = 0;
  __syncthreads();
  each([](std::uint32_t, unsigned, int) {});
  __syncthreads();
  std::uint32_t total = 0;
#pragma unroll 8
  for (unsigned w = 0; bin < radix_bins && w < warps; ++w) total += counts[w][bin];
  std::uint32_t place = sum_before<threads>(total);
#pragma unroll 8
  for (unsigned w = 0; bin < radix_bins && w < warps; ++w) {
    const std::uint32_t count = counts[w][bin];
    counts[w][bin] = place;
    place += count;
  }
  __syncthreads();
  each([&](std::uint32_t i, unsigned digit, int before) { put(i, own[digit] + before); });
}

}  // namespace weft
