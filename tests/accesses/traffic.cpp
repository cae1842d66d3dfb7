// Sectors and bank conflicts of hand-made kernels, as the CUDA C++ Programming Guide and Best
// Practices Guide count them.
#include <vector>

#include "doctest/doctest.h"
#include "tests/accesses/counted.h"
#include "tests/emulated/device.h"

using namespace weft;
using emulated::accesses::Counts;
using emulated::accesses::Space;

namespace {

template <class T>
__global__ void reads_global(const T* from, int stride, int offset, int* to) {
  const T x = from[int(threadIdx.x) * stride + offset];
  if (reinterpret_cast<const int&>(x) == 12345) to[0] = 1;
}

// Shared memory is uninitialised: only the conflicts matter.
template <class T>
__global__ void reads_shared(int stride, int modulus, int* to) {
  T* const words = SharedMemory().take<T>(2048);
  const T x = words[int(threadIdx.x) * stride % modulus];
  if (reinterpret_cast<const int&>(x) == 12345) to[0] = 1;
}

__global__ void adds(int* to, int stride) { atomicAdd(to + int(threadIdx.x) * stride, 1); }
__global__ void some_lanes(int* to) {
  if (threadIdx.x % 4 == 0) to[threadIdx.x] = 1;
}

// Lane l does l iterations of the loop.
__global__ void loops(const int* from, int* to, bool meet) {
  int sum = 0;
  for (int i = 0; i < 32; ++i) {
    if (i <= int(threadIdx.x)) sum += from[32 * i + int(threadIdx.x)];
    if (meet) __syncwarp();
  }
  if (sum == 12345) to[0] = sum;
}

struct Two {
  alignas(8) int x[2];
};
struct Four {
  alignas(16) int x[4];
};

const DeviceArray<int> memory(std::vector<int>(16384, 0));

template <class T>
Counts of_global(int stride, int offset = 0) {
  return counted(Space::global, [&] {
    REQUIRE(
        message_of(launch({.block = 32}, reads_global<T>, reinterpret_cast<const T*>(memory.data()),
                          stride, offset, memory.data())) == "");
  });
}

template <class T>
Counts of_shared(int stride, int modulus = 2048) {
  return counted(Space::shared, [&] {
    REQUIRE(message_of(launch({.block = 32, .shared = 2048 * sizeof(T)}, reads_shared<T>, stride,
                              modulus, memory.data())) == "");
  });
}

}  // namespace

TEST_SUITE("accesses") {

TEST_CASE("traffic: sectors of strides, offsets and widths") {
  const Counts one = of_global<int>(1);
  CHECK(one.requests == 1);
  CHECK(one.lanes == 32);
  CHECK(one.sectors == 4);  // 128 bytes
  CHECK(one.least_sectors == 4);
  CHECK(of_global<int>(1, 1).sectors == 5);  // the last lane is in a further sector
  CHECK(of_global<int>(1, 8).sectors == 4);
  CHECK(of_global<int>(2).sectors == 8);
  CHECK(of_global<int>(3).sectors == 12);
  CHECK(of_global<int>(8).sectors == 32);
  CHECK(of_global<int>(32).sectors == 32);
  CHECK(of_global<int>(32).least_sectors == 4);
  CHECK(of_global<int>(0).sectors == 1);  // a broadcast
  CHECK(of_global<Two>(1).sectors == 8);
  CHECK(of_global<Two>(2).sectors == 16);
  CHECK(of_global<Four>(1).sectors == 16);
  CHECK(of_global<Four>(2).sectors == 32);
  CHECK(of_global<Four>(2).least_sectors == 16);
}

TEST_CASE("traffic: bank conflicts of strides and widths") {
  const Counts one = of_shared<int>(1);
  CHECK(one.requests == 1);
  CHECK(one.passes == 1);
  CHECK(one.least_passes == 1);
  CHECK(of_shared<int>(2).passes == 2);
  CHECK(of_shared<int>(3).passes == 1);  // odd strides have no conflict
  CHECK(of_shared<int>(33).passes == 1);
  CHECK(of_shared<int>(4).passes == 4);
  CHECK(of_shared<int>(32).passes == 32);
  CHECK(of_shared<int>(0).passes == 1);       // a broadcast
  CHECK(of_shared<int>(32, 64).passes == 2);  // two words of one bank, each read by 16 lanes
  CHECK(of_shared<char>(1).passes == 1);      // four lanes read one word
  const Counts two = of_shared<Two>(1);
  CHECK(two.passes == 2);  // half a warp at a time
  CHECK(two.least_passes == 2);
  CHECK(of_shared<Two>(2).passes == 4);
  CHECK(of_shared<Two>(3).passes == 2);
  const Counts four = of_shared<Four>(1);
  CHECK(four.passes == 4);  // a quarter of a warp at a time
  CHECK(four.least_passes == 4);
  CHECK(of_shared<Four>(2).passes == 8);
  CHECK(of_shared<Four>(3).passes == 4);
}

TEST_CASE("traffic: active lanes, atomics, and requests between two meetings of lanes") {
  const Counts some =
      counted(Space::global, [&] { launch({.block = 64}, some_lanes, memory.data()); });
  CHECK(some.requests == 2);
  CHECK(some.lanes == 16);
  CHECK(some.sectors == 8);
  CHECK(some.least_sectors == 2);
  CHECK(counted(Space::global, [&] { launch({.block = 32}, adds, memory.data(), 1); }).sectors ==
        4);
  const auto looped = [&](bool meet) {
    return counted(Space::global, [&] {
      launch({.block = 32}, loops, memory.data(), memory.data() + 2048, meet);
    });
  };
  CHECK(looped(true).requests == 32);
  CHECK(looped(true).lanes == 32 * 33 / 2);
  CHECK(looped(false).requests == 32);
}

}  // TEST_SUITE("accesses")
