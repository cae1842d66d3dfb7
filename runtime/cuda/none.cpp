// A build without kernels for CUDA devices has none of them.
#include "runtime/cuda/device.h"

namespace weft {

const CudaDevices& cuda_devices() {
  static const CudaDevices none{{}, "this build computes on the CPU only"};
  return none;
}

}  // namespace weft
