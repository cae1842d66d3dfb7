// The shared memory that a launch asked for, in CUDA.
#pragma once

namespace weft {

__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
}

}  // namespace weft
