// Thrust on a CUDA device: on our stream, with scratch from our allocator.
#pragma once

#include <cstddef>

#include <thrust/execution_policy.h>
#include <thrust/system_error.h>

#include "runtime/allocator.h"
#include "runtime/cuda/stream.h"

namespace weft {

// Memory may be freed as soon as the work that uses it is queued, as with a Workspace.
class ThrustScratch {
 public:
  using value_type = char;

  explicit ThrustScratch(const Cuda& device) : device_(device) {}
  char* allocate(std::ptrdiff_t bytes) {
    return static_cast<char*>(allocator_of(device_).allocate(static_cast<std::size_t>(bytes)));
  }
  void deallocate(char* block, std::size_t) { allocator_of(device_).deallocate(block); }

 private:
  Cuda device_;
};

// Calls f(policy), which queues algorithms. Thrust itself knows how much scratch they need.
template <class F>
void run_thrust(const char* name, const Cuda& device, i64, const F& f) {
  ThrustScratch scratch(device);
  try {
    f(thrust::cuda::par_nosync(scratch).on(stream_of(device)));
  } catch (const thrust::system_error& error) {
    check_cuda(static_cast<cudaError_t>(error.code().value()), name);
    throw;
  }
}

}  // namespace weft
