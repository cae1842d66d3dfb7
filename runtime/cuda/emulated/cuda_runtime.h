// Replaces CUDA's <cuda_runtime.h> on machines without CUDA: the part of it that weft uses, under
// the same names and with the same meaning. Kernels run on the CPU (block.h), streams execute at
// once what they are given, and a graph is a list of what was captured.
//
// Stricter than CUDA, to find faults: after each launch the bytes around every allocation are
// checked, so that a write out of bounds is an error of that launch; fresh memory holds NaN.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime/cuda/emulated/accesses.h"
#include "runtime/cuda/emulated/block.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static  // blocks run one after the other
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

// --- types

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct uint3 {
  unsigned x, y, z;
};

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault,
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};

using cudaStream_t = struct EmulatedStream*;
using cudaEvent_t = struct EmulatedEvent*;
using cudaGraph_t = struct EmulatedGraph*;
using cudaGraphExec_t = struct EmulatedGraph*;
using cudaHostFn_t = void (*)(void* argument);

// --- called by the host

const char* cudaGetErrorName(cudaError_t);
const char* cudaGetErrorString(cudaError_t);  // of a failed launch: what was wrong, and where
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device);
cudaError_t cudaDriverGetVersion(int* version);

cudaError_t cudaMalloc(void** pointer, std::size_t bytes);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes);  // page-locked
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t);
cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t, void* argument);
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventDestroy(cudaEvent_t);

namespace weft::emulated {
// Executes work of a stream, or records it while the stream is captured. The device does one thing
// after the other in the whole process; what is `on_host` may wait for another thread's work.
cudaError_t enqueue(cudaStream_t, std::function<void()> work, bool on_host = false);
cudaError_t start(const void* kernel, dim3 grid, dim3 block, std::size_t shared, cudaStream_t,
                  std::function<void()> thread);
// Lets the kernel use up to this much shared memory.
cudaError_t allow_shared(const void* kernel, int bytes);
// A grid may have 65,535 blocks along y, and z; a test sets less to see sooner what would exceed
// it.
void set_most_rows(unsigned rows);
// The shared memory that a block may have.
void set_most_shared(std::size_t bytes);
}

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute, int bytes) {
  return weft::emulated::allow_shared(reinterpret_cast<const void*>(kernel), bytes);
}

template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments,
                             std::size_t shared, cudaStream_t stream) {
  const auto copied = [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::tuple<std::remove_cvref_t<P>...>(
        *static_cast<std::remove_cvref_t<P>*>(arguments[i])...);
  }(std::index_sequence_for<P...>{});
  return weft::emulated::start(reinterpret_cast<const void*>(kernel), grid, block, shared, stream,
                               [kernel, copied] { std::apply(kernel, copied); });
}

// --- called by a thread

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

using WeftSite = std::source_location;

inline void __syncthreads(WeftSite site = WeftSite::current()) {
  weft::emulated::barrier(false, site);
}
inline int __syncthreads_count(int predicate, WeftSite site = WeftSite::current()) {
  return static_cast<int>(weft::emulated::barrier(predicate != 0, site));
}
inline int __syncthreads_or(int predicate, WeftSite site = WeftSite::current()) {
  return weft::emulated::barrier(predicate != 0, site) > 0;
}
inline int __syncthreads_and(int predicate, WeftSite site = WeftSite::current()) {
  return weft::emulated::barrier(predicate == 0, site) == 0;
}

inline unsigned __ballot_sync(unsigned mask, int predicate, WeftSite site = WeftSite::current()) {
  using namespace weft::emulated;
  return static_cast<unsigned>(exchange(Exchange::vote, mask, predicate != 0, 0, site));
}
inline int __any_sync(unsigned mask, int predicate, WeftSite site = WeftSite::current()) {
  return __ballot_sync(mask, predicate, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, WeftSite site = WeftSite::current()) {
  return __ballot_sync(mask, predicate == 0, site) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffff, WeftSite site = WeftSite::current()) {
  using namespace weft::emulated;
  if constexpr (accesses::seen) {
    exchange(Exchange::order, mask, 0, 0, site);
  } else {
    __ballot_sync(mask, 0, site);
  }
}

namespace weft::emulated {

template <class T>
std::uint64_t bits_of(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

// The value of the lane `from` if it is in the caller's segment of `width` lanes, otherwise the
// caller's own.
template <class T>
T shuffled(unsigned mask, T value, int from, int width, const std::source_location& site) {
  const int own = static_cast<int>(lane()), first = own & ~(width - 1);
  const int lane = from < first || from >= first + width ? own : from;
  const std::uint64_t bits =
      exchange(Exchange::shuffle, mask, bits_of(value), static_cast<unsigned>(lane), site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace weft::emulated

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32,
              WeftSite site = WeftSite::current()) {
  const int first = static_cast<int>(weft::emulated::lane()) & ~(width - 1);
  return weft::emulated::shuffled(mask, value, first + (from & (width - 1)), width, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32,
                 WeftSite site = WeftSite::current()) {
  const int from = static_cast<int>(weft::emulated::lane()) - static_cast<int>(by);
  return weft::emulated::shuffled(mask, value, from, width, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                   WeftSite site = WeftSite::current()) {
  const int from = static_cast<int>(weft::emulated::lane()) + static_cast<int>(by);
  return weft::emulated::shuffled(mask, value, from, width, site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32,
                  WeftSite site = WeftSite::current()) {
  const int from = static_cast<int>(weft::emulated::lane()) ^ by;
  return weft::emulated::shuffled(mask, value, from, width, site);
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, WeftSite site = WeftSite::current()) {
  using namespace weft::emulated;
  return static_cast<unsigned>(exchange(Exchange::match, mask, bits_of(value), 0, site));
}

namespace weft::emulated {
// Replaces *at, and returns its old value. Threads are never preempted between their waits, so this
// is atomic. In builds that record accesses it is reported as one atomic operation instead of a
// read and a write; it is inlined, so that the return address is in the kernel.
template <class T, class Change>
[[gnu::no_sanitize_thread, gnu::always_inline]] inline T replaced(T* at, const Change& by) {
  if constexpr (accesses::seen) {
    accesses::atomic_access(at, sizeof(T), __builtin_return_address(0));
  }
  const T old = *at;
  *at = by(old);
  return old;
}
}  // namespace weft::emulated

template <class T>
[[gnu::no_sanitize_thread]] T atomicAdd(T* at, std::type_identity_t<T> value) {
  return weft::emulated::replaced(at, [&](T old) { return static_cast<T>(old + value); });
}
template <class T>
[[gnu::no_sanitize_thread]] T atomicMax(T* at, std::type_identity_t<T> value) {
  return weft::emulated::replaced(at, [&](T old) { return old < value ? value : old; });
}
template <class T>
[[gnu::no_sanitize_thread]] T atomicExch(T* at, std::type_identity_t<T> value) {
  return weft::emulated::replaced(at, [&](T) { return value; });
}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
