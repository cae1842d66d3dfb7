#include "runtime/cuda/device.h"

#include <algorithm>

#include <emulated_device.h>  // of native/ or of emulated/

#include "runtime/allocator.h"
#include "runtime/cuda/stream.h"
#include "runtime/elements.h"
#include "runtime/error.h"

namespace weft {
namespace {

CudaDevices found_devices() {
  CudaDevices devices;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    int driver = 0;
    const bool known = cudaDriverGetVersion(&driver) == cudaSuccess;
    devices.none_because =
        known && driver == 0 ? "there is no CUDA driver" : cudaGetErrorString(error);
    return devices;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    check_cuda(cudaGetDeviceProperties(&properties, i), "cuda");
    devices.all.push_back({properties.name, properties.totalGlobalMem, properties.major,
                           properties.minor, properties.multiProcessorCount, emulated_device});
  }
  if (count == 0) devices.none_because = "there is no device";
  return devices;
}

int in_use = -1;  // the device of this process: the first one it used

// An existing device; throws where there is none, and where the process uses another one.
const CudaDevice& checked(const Cuda& device) {
  const CudaDevices& devices = cuda_devices();
  require(!devices.all.empty(), "cuda: no device to compute on ({}); use the CPU",
          devices.none_because);
  require(device.index >= 0 && device.index < static_cast<int>(devices.all.size()),
          "cuda: there is no device {}; {} found", device.index, devices.all.size());
  if (in_use < 0) {
    check_cuda(cudaSetDevice(device.index), "cuda");
    in_use = device.index;
  }
  require(device.index == in_use,
          "cuda: device {} was asked for, but this process computes on device {}, and on no other",
          device.index, in_use);
  return devices.all[static_cast<std::size_t>(device.index)];
}

void* device_memory(std::size_t bytes) {
  void* block = nullptr;
  const cudaError_t error = cudaMalloc(&block, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(error, "allocator");
  return block;
}

void release_memory(void* block, std::size_t) { cudaFree(block); }

void fill_memory(void* block, unsigned char byte, std::size_t bytes) {
  check_cuda(cudaMemsetAsync(block, byte, bytes, stream_of(Cuda{in_use})), "allocator");
}

}  // namespace

Cuda::operator Cpu() const {
  throw DeviceError(
      "this op has kernels for the CPU only, none for CUDA devices; use --device cpu, or move the "
      "tensors with to(Device{})");
}

const CudaDevices& cuda_devices() {
  static const CudaDevices devices = found_devices();
  return devices;
}

cudaStream_t stream_of(const Cuda& device) {
  static const cudaStream_t stream = [&] {
    checked(device);
    cudaStream_t made = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cuda");
    return made;
  }();
  return stream;
}

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const std::string message = cudaGetErrorString(error);
  cudaGetLastError();
  throw DeviceError(fmt::format("{}: CUDA reports {}: {}{}", what, cudaGetErrorName(error), message,
                                error == cudaErrorNoKernelImageForDevice
                                    ? "; configure the build with -Dgpu_arch for this device"
                                    : ""));
}

std::size_t most_shared(const Cuda& device) {
  int bytes = 0;
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index),
             "cuda");
  return static_cast<std::size_t>(bytes);
}

void check_shared(cudaError_t error, const char* what, std::size_t bytes) {
  if (error != cudaErrorInvalidValue) return check_cuda(error, what);
  cudaGetLastError();
  throw DeviceError(
      fmt::format("{}: a block wants {} bytes of shared memory, but this device has {} for one; "
                  "use smaller sizes, or the CPU",
                  what, bytes, most_shared(Cuda{in_use})));
}

bool is_over(cudaError_t asked, const char* what) {
  if (asked == cudaErrorNotReady) return false;
  check_cuda(asked, what);
  return true;
}

unsigned blocks_for(const Cuda& device, i64 count, unsigned threads) {
  const i64 wanted = (count + threads - 1) / threads;
  const i64 most = i64{16} * checked(device).multiprocessors;
  return static_cast<unsigned>(std::clamp<i64>(wanted, 1, most));
}

void synchronize(const Cuda& device) {
  check_cuda(cudaStreamSynchronize(stream_of(device)), "cuda");
}

bool idle(const Cuda& device) { return is_over(cudaStreamQuery(stream_of(device)), "cuda"); }

void call_in_order(const Cuda& device, void (*f)(void*), void* argument) {
  check_cuda(cudaLaunchHostFunc(stream_of(device), f, argument), "cuda");
}

CachingAllocator& allocator_of(const Cuda& device) {
  checked(device);
  static auto* const cuda =
      new CachingAllocator({"the CUDA device", device_memory, release_memory, fill_memory});
  return *cuda;
}

void copy_bytes(const Cuda& device, const std::byte* from, std::byte* to, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(device)), "copy");
  synchronize(device);
}

}  // namespace weft
