// How kernels over lists cut their work: by shape, so that sums have one order.
#pragma once

#include "runtime/types.h"

namespace weft {

// Queries that a piece of parallel work has, and keys; what they add to the types' gradients is
// summed piece by piece.
inline constexpr i64 list_share = 512;
inline constexpr i64 device_share = 256;  // the same on a CUDA device

}  // namespace weft
