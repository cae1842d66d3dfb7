// The stream on which all work of a CUDA device is queued, and checked calls: for .cu files and for
// host code that calls CUDA.
#pragma once

#include <cstdint>

#include "runtime/cuda/device.h"
#include "runtime/cuda/launch.h"
#include "runtime/types.h"

namespace weft {

cudaStream_t stream_of(const Cuda&);

// Throws Error, beginning with `what`, unless the call succeeded.
void check_cuda(cudaError_t error, const char* what);

// The bytes of shared memory that a block may have.
std::size_t most_shared(const Cuda&);
// The same as check_cuda() for a request for `bytes` of it.
void check_shared(cudaError_t error, const char* what, std::size_t bytes);

// The answer to a question whether work is over (cudaStreamQuery, cudaEventQuery); throws likewise.
bool is_over(cudaError_t asked, const char* what);

// Blocks of `threads` for a grid-stride loop over `count` elements: enough to fill the device.
unsigned blocks_for(const Cuda&, i64 count, unsigned threads);

// Starts a kernel on the device's stream, and opts in to more than 48 KB of shared memory where it
// needs it. `name` is that of the op, for errors.
template <class... P>
void start(const char* name, const Cuda& device, dim3 grid, dim3 block, std::size_t shared,
           void (*kernel)(P...), std::type_identity_t<P>... arguments) {
  if (shared > 48 * 1024) {
    check_shared(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shared)),
                 name, shared);
  }
  check_cuda(launch({grid, block, shared, stream_of(device)}, kernel, arguments...), name);
}

}  // namespace weft
