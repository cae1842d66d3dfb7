// CUDA kernel that chooses the k keys of largest score for each cluster: a radix selection, eight
// bits of the scores at a time, from the highest. A block of 128 threads (tiles.cuh) has 32
// clusters and goes through all keys once for each eight bits until it knows how many of each
// cluster's scores lie above the k-th; then once more, to write down the keys in rising order.
//
// The scores are computed again on each way, so that nothing of C × S is held: at most five times
// the 26 MFLOP of one head with C = 100, S = 2048, E = 64 in f32, which two or three would do where
// the first bits decide. Shared memory is the limit (estimates, not measured).
//
// Blocks of 128 threads on a multiprocessor, in f32: 4 (96 registers, 51 KB of shared memory).
#include <bit>
#include <limits>

#include "ops/attention/by_type.h"
#include "ops/attention/clustered/tiles.cuh"
#include "ops/attention/i_clustered/i_clustered.h"
#include "ops/attention/i_clustered/members.cuh"

namespace weft {
namespace {

using namespace tiles;

constexpr int digits = 256, digit_bits = 8;

template <class T>
using Code = Bits<T>;

// Rises with the score. NaN and −∞ are no candidates: the lowest keys fill up, and these are 0.
template <class T>
__device__ Code<T> code_of(T score) {
  constexpr Code<T> sign = Code<T>{1} << (sizeof(T) * 8 - 1);
  if (!(score > -std::numeric_limits<T>::infinity())) return 0;
  const auto bits = std::bit_cast<Code<T>>(score + T(0));  // of zeros only +0
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

template <class T>
struct SelectShared {
  Shared<T> tiles;
  std::int32_t counts[side][digits + 1];
  Code<T> prefix[side];       // the bits of the k-th score that are known
  std::int32_t wanted[side];  // how many of the scores that begin with these are chosen
};

template <class T>
__global__ __launch_bounds__(threads, 3) void select_kernel(MeansAttention<T> p,
                                                            std::int32_t* topk) {
  SelectShared<T>& s = *SharedMemory{}.take<SelectShared<T>>(1);
  const std::int64_t tall = (p.C() + side - 1) / side;
  const std::int64_t head = blockIdx.x / tall, first = blockIdx.x % tall * side;
  const std::int64_t b = head / p.H(), h = head % p.H(), keys = length_of(p.lengths, b, p.S());
  const int t = threadIdx.x, row = weighing_row(), eight = weighing_first();
  const std::int64_t last = first + side < p.C() ? first + side : p.C();
  const std::int32_t* const begins = p.begins + head * (p.C() + 1);
  std::int32_t* const chosen = topk + (head * p.C() + first) * p.count;
  if (keys <= p.count || begins[first] == begins[last]) {
    for (std::int64_t i = t; i < (last - first) * p.count; i += threads) {
      chosen[i] = i % p.count < keys ? static_cast<std::int32_t>(i % p.count) : -1;
    }
    return;
  }
  if (t < side) {
    const bool real = first + t < p.C() && begins[first + t] < begins[first + t + 1];
    s.tiles.own[0][t] = real ? &p.means(b, first + t, h, 0) : nullptr;
    s.prefix[t] = 0;
    s.wanted[t] = static_cast<std::int32_t>(p.count);
  }
  int shift = sizeof(T) * 8;          // bits of the scores that are not known yet
  std::int32_t place = 0, equal = 0;  // of thread t < 32: of the cluster first + t
  for (bool decided = false;;) {
    if (!decided) {
      for (int i = t; i < side * (digits + 1); i += threads)
        s.counts[i / (digits + 1)][i % (digits + 1)] = 0;
    }
    for (std::int64_t key = 0; key < keys; key += side) {
      if (t < side) s.tiles.other[0][t] = key + t < keys ? &p.k(b, key + t, h, 0) : nullptr;
      multiply(s.tiles, s.tiles.own[0], p.means.stride(3), s.tiles.other[0], p.k.stride(3), p.E(),
               p.temperature, false, s.tiles.first);
      __syncthreads();
      if (!decided) {
        for (int j = eight; j < eight + 8 && key + j < keys; ++j) {
          const Code<T> code = code_of(s.tiles.first[row][j]);
          const bool begun = shift == sizeof(T) * 8 || code >> shift == s.prefix[row];
          if (begun) atomicAdd(&s.counts[row][code >> (shift - digit_bits) & (digits - 1)], 1);
        }
      } else if (t < side && first + t < p.C()) {
        for (int j = 0; j < side && key + j < keys; ++j) {
          const Code<T> code = code_of(s.tiles.first[t][j]) >> shift;
          if (code < s.prefix[t] || (code == s.prefix[t] && equal == s.wanted[t])) continue;
          if (code == s.prefix[t]) ++equal;
          chosen[t * p.count + place++] = static_cast<std::int32_t>(key + j);
        }
      }
    }
    if (decided) return;
    __syncthreads();
    shift -= digit_bits;
    bool settled = true;
    if (t < side) {
      int digit = digits - 1;
      std::int32_t wanted = s.wanted[t];
      for (; digit > 0 && s.counts[t][digit] < wanted; --digit) wanted -= s.counts[t][digit];
      s.prefix[t] = s.prefix[t] << digit_bits | static_cast<Code<T>>(digit);
      s.wanted[t] = wanted;
      settled = s.counts[t][digit] == wanted;
    }
    decided = __syncthreads_and(settled || shift == 0) != 0;
  }
}

struct TakenTopk {
  TopkGiven p;
  std::int32_t* topk;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t key = p.given[i], b = i / p.k / p.C / p.H;
    const bool real = key >= 0 && key < length_of(p.lengths, b, p.S);
    topk[i] = real ? static_cast<std::int32_t>(key) : -1;
  }
};

}  // namespace

template <class T>
void SelectionKernels<T>::select(const Cuda& device, const MeansAttention<T>& p,
                                 std::int32_t* topk) {
  const std::int64_t blocks = p.B() * p.H() * ((p.C() + side - 1) / side);
  if (blocks == 0) return;
  start("i-clustered", device, static_cast<unsigned>(blocks), threads,
        SharedMemory::bytes<SelectShared<T>>(1), select_kernel<T>, p, topk);
}

template <class Device>
void GivenTopkKernels<Device>::take(const Device& device, const TopkGiven& p, std::int32_t* topk) {
  for_elements("i-clustered", device, p.B * p.H * p.C * p.k, TakenTopk{p, topk});
}

template struct SelectionKernels<float>;
template struct SelectionKernels<double>;
template struct GivenTopkKernels<Cuda>;

}  // namespace weft
