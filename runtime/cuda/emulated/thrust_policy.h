// Thrust on the emulated device: its sequential system, queued as work of the stream.
#pragma once

#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP

#include <cstddef>
#include <new>

#include <thrust/execution_policy.h>

#include "runtime/cuda/stream.h"
#include "runtime/cuda/workspace.h"

namespace weft {

// Hands out a block of memory from its beginning on. Each replay of a captured step sorts again in
// memory that was allocated during the capture, so an algorithm gets all its scratch before it
// runs.
class ThrustScratch {
 public:
  using value_type = std::byte;

  ThrustScratch(std::byte* next, std::size_t left) : next_(next), left_(left) {}
  std::byte* allocate(std::size_t bytes) {
    bytes = (bytes + alignment - 1) / alignment * alignment;
    if (bytes > left_) throw std::bad_alloc();
    left_ -= bytes;
    next_ += bytes;
    return next_ - bytes;
  }
  void deallocate(std::byte*, std::size_t) {}

  static constexpr std::size_t alignment = 16, most_blocks = 8;

 private:
  std::byte* next_;
  std::size_t left_;
};

// Queues f(policy), whose algorithms want `scratch` bytes in at most eight blocks.
template <class F>
void run_thrust(const char* name, const Cuda& device, i64 scratch, const F& f) {
  const i64 bytes = scratch + ThrustScratch::alignment * ThrustScratch::most_blocks;
  const Workspace<std::byte> memory(device, bytes);
  const ThrustScratch whole(memory.data(), static_cast<std::size_t>(bytes));
  const auto work = [=] {
    ThrustScratch own = whole;
    f(thrust::seq(own));
  };
  check_cuda(emulated::enqueue(stream_of(device), work), name);
}

}  // namespace weft
