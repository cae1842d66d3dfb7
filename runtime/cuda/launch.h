// Launching kernels, the same for CUDA and for the emulated device: what a .cu file includes.
//
//     launch({.grid = blocks, .block = 256, .shared = bytes, .stream = stream}, kernel, values…);
//
// Occupancy (blocks on a multiprocessor), as the pages of kernels state it, is counted for compute
// capability 9.0: 65,536 registers, allocated in multiples of eight to a thread; 228 KB of shared
// memory, of which a block takes 1 KB more than it asks for; 2,048 threads.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include <dynamic_shared.h>  // of native/ or of emulated/

namespace weft {

struct Launch {
  dim3 grid = 1, block = 1;
  std::size_t shared = 0;  // bytes of shared memory of a block
  cudaStream_t stream = nullptr;
};

template <class... P>
cudaError_t launch(const Launch& how, void (*kernel)(P...), std::type_identity_t<P>... arguments) {
  void* list[] = {&arguments..., nullptr};
  return cudaLaunchKernel(kernel, how.grid, how.block, list, how.shared, how.stream);
}

// Splits a block's shared memory into arrays, each aligned to a row of its banks; every thread gets
// the same.
class SharedMemory {
 public:
  static constexpr std::size_t alignment = 128;
  __device__ SharedMemory() : next_(dynamic_shared<alignment>()) {}

  template <class T>
  __device__ T* take(std::size_t count) {
    T* const piece = reinterpret_cast<T*>(next_);
    next_ += bytes<T>(count);
    return piece;
  }
  // The bytes that take<T>(count) uses.
  template <class T>
  static __host__ __device__ constexpr std::size_t bytes(std::size_t count) {
    return (count * sizeof(T) + alignment - 1) / alignment * alignment;
  }

 private:
  unsigned char* next_;
};

}  // namespace weft
