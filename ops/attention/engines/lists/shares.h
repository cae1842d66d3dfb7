// How kernels over lists split their work: by shape, so that sums have a fixed order.
#pragma once

#include "runtime/types.h"

namespace weft {

// Queries, and keys, of one task; their gradients of the types are summed task by task.
inline constexpr i64 list_share = 512;
inline constexpr i64 device_share = 256;  // the same on a CUDA device

}  // namespace weft
