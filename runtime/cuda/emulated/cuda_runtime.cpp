#include "runtime/cuda/emulated/cuda_runtime.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/core.h>

// Marks bytes that nobody may touch for a sanitizer. Null where it is not linked.
extern "C" {
[[gnu::weak]] void __asan_poison_memory_region(const volatile void*, std::size_t);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void*, std::size_t);
}

struct EmulatedGraph {
  struct Node {
    std::function<void()> work;
    bool on_host;
  };
  std::vector<Node> nodes;
};
struct EmulatedStream {
  EmulatedGraph* captured = nullptr;  // the graph that captures the stream's work
};
struct EmulatedEvent {};  // a stream has finished its work before anybody can wait

namespace weft::emulated {
namespace {

constexpr std::byte untouched{0xa5};

EmulatedStream default_stream;
int captures = 0;
unsigned most_rows = 65535;  // the most blocks along y and z of a grid
std::size_t most_shared = most_shared_bytes;  // of a block
std::string launch_error = "the launch failed";
cudaError_t last_error = cudaSuccess;

cudaError_t failed(cudaError_t error) { return last_error = error; }

// Allocations by address, each between two guards.
class Memory {
 public:
  void* allocate(std::size_t bytes) {
    const std::size_t whole = (bytes + guard - 1) / guard * guard + 2 * guard;
    auto* const block = static_cast<std::byte*>(std::aligned_alloc(guard, whole));
    if (block == nullptr) return nullptr;
    std::memset(block, 0xff, whole);
    std::fill_n(block, guard, untouched);
    std::fill_n(block + guard + bytes, whole - guard - bytes, untouched);
    sizes_[block + guard] = {bytes, whole};
    if constexpr (accesses::seen) accesses::allocated(block + guard, bytes);
    hide(block, guard);
    hide(block + guard + bytes, whole - guard - bytes);
    return block + guard;
  }

  bool free(void* pointer) {
    const auto found = sizes_.find(static_cast<std::byte*>(pointer));
    if (found == sizes_.end()) return false;
    std::byte* const block = found->first - guard;
    if constexpr (accesses::seen) accesses::freed(found->first);
    show(block, found->second.whole);
    std::free(block);
    sizes_.erase(found);
    return true;
  }

  // Throws if a guard was written to. A sanitizer finds that, and reads of guards, by itself.
  void check() const {
    if (__asan_poison_memory_region != nullptr) return;
    for (const auto& [begin, size] : sizes_) {
      check_guard(begin - guard, guard, "before", begin, size.bytes);
      check_guard(begin + size.bytes, size.whole - guard - size.bytes, "behind", begin, size.bytes);
    }
  }

 private:
  struct Size {
    std::size_t bytes, whole;
  };

  static void check_guard(std::byte* from, std::size_t bytes, const char* side,
                          const std::byte* begin, std::size_t size) {
    for (std::size_t i = 0; i < bytes; ++i) {
      if (from[i] == untouched) continue;
      std::fill_n(from, bytes, untouched);
      throw std::runtime_error(
          fmt::format("a kernel wrote {} an allocation of {} bytes, {} bytes from its beginning",
                      side, size, from + i - begin));
    }
  }
  static void hide(std::byte* at, std::size_t bytes) {
    if (__asan_poison_memory_region != nullptr) __asan_poison_memory_region(at, bytes);
  }
  static void show(std::byte* at, std::size_t bytes) {
    if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(at, bytes);
  }

  std::map<std::byte*, Size> sizes_;
};

Memory& memory() {
  static auto* const all = new Memory;
  return *all;
}

std::mutex& one_at_a_time() {
  static std::mutex mutex;
  return mutex;
}

// The shared memory that a kernel may have; sets it where `bytes` are given.
std::size_t shared_of(const void* kernel, std::optional<std::size_t> bytes = {}) {
  static auto* const asked = new std::map<const void*, std::size_t>;
  const std::lock_guard lock(one_at_a_time());
  if (bytes) (*asked)[kernel] = *bytes;
  const auto found = asked->find(kernel);
  return found == asked->end() ? shared_bytes_unasked
                               : std::max(found->second, shared_bytes_unasked);
}

// Refuses, inside a capture, calls that wait for the device or change its memory.
cudaError_t outside_captures() {
  return captures == 0 ? cudaSuccess : failed(cudaErrorStreamCaptureUnsupported);
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, bool on_host) {
  EmulatedStream& own = stream != nullptr ? *stream : default_stream;
  if (own.captured != nullptr) {
    own.captured->nodes.push_back({std::move(work), on_host});
    return cudaSuccess;
  }
  if (on_host) {
    work();
    return cudaSuccess;
  }
  try {
    const std::lock_guard lock(one_at_a_time());
    if constexpr (accesses::seen) accesses::watch_stream(true);
    work();
    if constexpr (accesses::seen) accesses::watch_stream(false);
    return cudaSuccess;
  } catch (const std::exception& error) {
    if constexpr (accesses::seen) accesses::watch_stream(false);
    launch_error = error.what();
    return failed(cudaErrorLaunchFailure);
  }
}

cudaError_t start(const void* kernel, dim3 grid, dim3 block, std::size_t shared,
                  cudaStream_t stream, std::function<void()> thread) {
  const Extent blocks{grid.x, grid.y, grid.z}, threads{block.x, block.y, block.z};
  if (blocks.count() == 0 || grid.x > 0x7fffffff || grid.y > most_rows || grid.z > most_rows ||
      threads.count() == 0 || threads.count() > most_threads || block.z > 64 ||
      shared > most_shared) {
    return failed(cudaErrorInvalidConfiguration);
  }
  if (shared > shared_of(kernel)) return failed(cudaErrorInvalidValue);
  auto work = [=, thread = std::move(thread)] {
    run_grid(blocks, threads, shared, thread);
    memory().check();
  };
  if constexpr (accesses::seen) {
    return enqueue(stream, [=] { accesses::watch_launch(kernel, blocks, threads, work); });
  } else {
    return enqueue(stream, std::move(work));
  }
}

void set_most_rows(unsigned rows) { most_rows = rows; }
void set_most_shared(std::size_t bytes) { most_shared = bytes; }

cudaError_t allow_shared(const void* kernel, int bytes) {
  if (bytes < 0 || bytes > static_cast<int>(most_shared)) return failed(cudaErrorInvalidValue);
  shared_of(kernel, static_cast<std::size_t>(bytes));
  return cudaSuccess;
}

}  // namespace weft::emulated

using namespace weft::emulated;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
  }
  return "unknown error";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorLaunchFailure: return launch_error.c_str();
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : failed(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return failed(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "emulated device");
  properties->totalGlobalMem = std::size_t{4} << 30;
  properties->major = 9;
  properties->multiProcessorCount = 2;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device) {
  if (device != 0) return failed(cudaErrorInvalidDevice);
  *value = static_cast<int>(most_shared);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (const cudaError_t error = outside_captures(); error != cudaSuccess) return error;
  const std::lock_guard lock(one_at_a_time());
  *pointer = memory().allocate(bytes);
  return *pointer != nullptr ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* pointer) {
  if (const cudaError_t error = outside_captures(); error != cudaSuccess) return error;
  const std::lock_guard lock(one_at_a_time());
  return pointer == nullptr || memory().free(pointer) ? cudaSuccess : failed(cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  *pointer = std::malloc(bytes);
  return *pointer != nullptr ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return enqueue(stream, [=] {
    std::memmove(to, from, bytes);
    if constexpr (accesses::seen) accesses::host_copied(to, from, bytes);
  });
}

cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream) {
  return enqueue(stream, [=] {
    std::memset(to, byte, bytes);
    if constexpr (accesses::seen) accesses::host_set(to, byte, bytes);
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return outside_captures(); }

cudaError_t cudaStreamQuery(cudaStream_t) { return outside_captures(); }

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void* argument) {
  return enqueue(
      stream, [=] { f(argument); }, true);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->captured != nullptr) {
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  stream->captured = new EmulatedGraph;
  ++captures;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream == nullptr || stream->captured == nullptr) return failed(cudaErrorInvalidValue);
  *graph = std::exchange(stream->captured, nullptr);
  --captures;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new EmulatedGraph(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const EmulatedGraph::Node& node : graph->nodes) {
    const cudaError_t error = enqueue(stream, node.work, node.on_host);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t stream) {
  return enqueue(stream, [] {});
}

cudaError_t cudaEventSynchronize(cudaEvent_t) { return outside_captures(); }

cudaError_t cudaEventQuery(cudaEvent_t) { return outside_captures(); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
