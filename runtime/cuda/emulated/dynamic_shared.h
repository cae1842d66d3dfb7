// The shared memory that a launch asked for, on the emulated device.
#pragma once

#include "runtime/cuda/emulated/block.h"

namespace weft {

inline unsigned char* dynamic_shared() {
  return reinterpret_cast<unsigned char*>(emulated::shared_bytes());
}

}  // namespace weft
