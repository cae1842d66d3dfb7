// Whether there is a CUDA device, real or emulated, for tests that need one. Tests ask these
// instead of including runtime/dispatch.h, so that ccache shares their objects between builds with
// kernels for CUDA and without.
#pragma once

#include "runtime/cuda/device.h"

namespace weft {

extern const bool built_for_cuda;  // whether this build has kernels for it
extern const char* const no_cuda;  // what an error says where there is no device
inline bool cuda_is_there() { return !cuda_devices().all.empty(); }

}  // namespace weft
