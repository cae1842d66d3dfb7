// CUDA devices: what the rest of the program sees of them. No word of CUDA's stands here.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace weft {

// What kernels for a CUDA device are instantiated over.
struct Cuda {
  int index = 0;

  constexpr operator Device() const { return {DeviceType::cuda, index}; }
  // So that an op that declares kernels on Cpu alone compiles: throws DeviceError, which says that.
  [[noreturn]] operator Cpu() const;
};

struct CudaDevice {
  std::string name;
  std::size_t memory = 0;  // bytes
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
};
// The devices that are there, and, where there are none, why.
struct CudaDevices {
  std::vector<CudaDevice> all;
  std::string none_because;
};
const CudaDevices& cuda_devices();

// Waits until the device has done what it was told.
void synchronize(const Cuda&);

}  // namespace weft
