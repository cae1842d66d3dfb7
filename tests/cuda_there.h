// Whether there is a CUDA device, real or emulated, for tests that need one.
#pragma once

#include "runtime/cuda/device.h"
#include "runtime/dispatch.h"

namespace weft {

inline bool cuda_is_there() {
  if constexpr (has_cuda) return !cuda_devices().all.empty();
  return false;
}
// The message if there is none, in a build with kernels for it and in one without.
inline constexpr const char* no_cuda =
    has_cuda ? "no device to compute on" : "this build computes on the CPU only";

}  // namespace weft
