// CUDA devices, for the rest of the program. No CUDA type or header is used here.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace weft {

// The Device argument of kernels for CUDA.
struct Cuda {
  int index = 0;

  constexpr operator Device() const { return {DeviceType::cuda, index}; }
  // Lets an op that declares kernels for Cpu alone compile: throws DeviceError, which says so.
  [[noreturn]] operator Cpu() const;
};

struct CudaDevice {
  std::string name;
  std::size_t memory = 0;  // bytes
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  bool emulated = false;  // its memory is the host's, and each process has one of its own
};
// The devices of this machine; where there are none, the reason.
struct CudaDevices {
  std::vector<CudaDevice> all;
  std::string none_because;
};
const CudaDevices& cuda_devices();

// Waits until the device has finished all queued work.
void synchronize(const Cuda&);
// Whether it has.
bool idle(const Cuda&);

// Queues a call of f(argument) by a thread of the host: work queued later waits for its end. It can
// be captured in a graph, and calls nothing of CUDA.
void call_in_order(const Cuda&, void (*f)(void*), void* argument);

}  // namespace weft
