// Memory and launches of the emulated device, for its tests.
#pragma once

#include <string>
#include <vector>

#include "runtime/cuda/launch.h"

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    cudaMemcpyAsync(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice, nullptr);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> copy(count_);
    cudaMemcpyAsync(copy.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost, nullptr);
    return copy;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

// The error of a launch; empty if there is none.
inline std::string message_of(cudaError_t error) {
  cudaGetLastError();
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}
