// The instructions of runtime/cuda/mma.cuh on the emulated device, as the PTX ISA defines them.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "runtime/cuda/emulated/cuda_runtime.h"
#include "runtime/dtype.h"

namespace weft {

inline std::uint32_t pack(float low, float high) {
  return bf16(low).bits | std::uint32_t{bf16(high).bits} << 16;
}

inline float exp2_flushed(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.f : y;
}

using SharedAddress = char*;
inline SharedAddress shared_address(void* at) { return static_cast<char*>(at); }
inline SharedAddress flip(SharedAddress at, unsigned bits) {
  return reinterpret_cast<SharedAddress>(reinterpret_cast<std::uintptr_t>(at) ^ bits);
}

void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  WeftSite site = WeftSite::current());
void ldmatrix_x4(std::uint32_t (&m)[4], const void* row, WeftSite site = WeftSite::current());
void ldmatrix_x4_trans(std::uint32_t (&m)[4], const void* row, WeftSite site = WeftSite::current());

void cp_async(void* to, const void* from, unsigned bytes, WeftSite site = WeftSite::current());
inline void cp_async_commit() { emulated::commit_copies(); }
template <int groups_left>
void cp_async_wait() {
  emulated::wait_for_copies(groups_left);
}

}  // namespace weft
