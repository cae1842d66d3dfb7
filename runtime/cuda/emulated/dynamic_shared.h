// The shared memory that a launch asked for, on the emulated device.
#pragma once

#include "runtime/cuda/emulated/block.h"

namespace weft {

template <std::size_t alignment>
unsigned char* dynamic_shared() {
  static_assert(alignment <= emulated::shared_alignment);
  return reinterpret_cast<unsigned char*>(emulated::shared_bytes());
}

}  // namespace weft
