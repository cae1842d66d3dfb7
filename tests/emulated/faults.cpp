// Kernels with out-of-bounds accesses: `faults KIND` has to be stopped, by the guards of the
// emulated device (exit status 3) or by AddressSanitizer.
#include <cstdio>
#include <cstring>

#include "tests/emulated/device.h"

namespace {

__global__ void write_at(int* to, int i) { to[i] = 1; }
__global__ void read_at(const int* from, int i, int* to) { to[0] = from[i]; }
__global__ void write_shared(int i) { weft::SharedMemory().take<int>(4)[i + int(threadIdx.x)] = 1; }

}  // namespace

int main(int argc, char** argv) {
  const char* const kind = argc > 1 ? argv[1] : "";
  DeviceArray<int> numbers(std::vector<int>(10, 7)), more(1);
  cudaError_t error = cudaSuccess;
  if (std::strcmp(kind, "none") == 0) error = weft::launch({}, write_at, numbers.data(), 9);
  if (std::strcmp(kind, "write-behind") == 0) {
    error = weft::launch({}, write_at, numbers.data(), 10);
  }
  if (std::strcmp(kind, "write-before") == 0) {
    error = weft::launch({}, write_at, numbers.data(), -1);
  }
  if (std::strcmp(kind, "read-behind") == 0) {
    error = weft::launch({}, read_at, numbers.data(), 10, more.data());
  }
  if (std::strcmp(kind, "shared-behind") == 0) {
    error = weft::launch({.shared = 16}, write_shared, 4);
  }
  if (error == cudaSuccess) return 0;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  return 3;
}
