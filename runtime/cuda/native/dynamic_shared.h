// The shared memory that a launch asked for, in CUDA.
#pragma once

namespace weft {

template <std::size_t alignment>
__device__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(alignment) unsigned char bytes[];
  return bytes;
}

}  // namespace weft
