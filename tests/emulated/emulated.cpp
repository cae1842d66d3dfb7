// The emulated device: it behaves like CUDA, and it reports what is undefined behaviour on a GPU.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "doctest/doctest.h"
#include "tests/emulated/device.h"
#include "tests/orders.h"
#include "tests/program.h"

using namespace weft;

namespace {

constexpr unsigned all_lanes = 0xffffffff;

template <class F>
void under_all_orders(const F& f) {
  f();
  under_other_orders(f);
}

// Rows of a softmax, one block each: the warps reduce by shuffles, their results in shared memory.
template <class T>
__device__ T block_reduced(T value, T* warps, T (*combine)(T, T)) {
  for (int by = 16; by > 0; by /= 2) value = combine(value, __shfl_xor_sync(all_lanes, value, by));
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) warps[warp] = value;
  __syncthreads();
  value = warps[lane % (blockDim.x / 32)];
  for (int by = int(blockDim.x / 64); by > 0; by /= 2) {
    value = combine(value, __shfl_xor_sync(all_lanes, value, by));
  }
  __syncthreads();
  return value;
}

__global__ void softmax_rows(const double* x, i64 width, double* y) {
  SharedMemory memory;
  auto* const warps = memory.take<double>(blockDim.x / 32);
  const double* const row = x + blockIdx.x * width;
  double most = -INFINITY, sum = 0;
  for (auto i = i64(threadIdx.x); i < width; i += blockDim.x) most = std::max(most, row[i]);
  most = block_reduced<double>(most, warps, [](double a, double b) { return std::max(a, b); });
  for (auto i = i64(threadIdx.x); i < width; i += blockDim.x) sum += std::exp(row[i] - most);
  sum = block_reduced<double>(sum, warps, [](double a, double b) { return a + b; });
  for (auto i = i64(threadIdx.x); i < width; i += blockDim.x) {
    y[blockIdx.x * width + i] = std::exp(row[i] - most) / sum;
  }
}

__global__ void places(int* to) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  to[block * blockDim.x * blockDim.y * blockDim.z + thread] = int(block * 1000 + thread);
}

__global__ void warp_operations(int* to) {
  const int lane = int(threadIdx.x) % 32, i = int(threadIdx.x);
  int* const own = to + i * 8;
  own[0] = __shfl_sync(all_lanes, i, 5);
  own[1] = __shfl_up_sync(all_lanes, i, 3);
  own[2] = __shfl_down_sync(all_lanes, i, 4, 8);
  own[3] = __shfl_xor_sync(all_lanes, i, 9);
  own[4] = int(__ballot_sync(all_lanes, lane % 3 == 0));
  own[5] = __any_sync(all_lanes, lane == 31) + 2 * __all_sync(all_lanes, lane < 31);
  own[6] = int(__match_any_sync(all_lanes, lane / 7));
  own[7] = 0;
  if (lane < 16) own[7] = __shfl_sync(0x0000ffff, i, 15);
}

__global__ void count_members(const int* labels, int n, int* counts, int* order) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  order[i] = atomicAdd(counts + labels[i], 1);
  atomicMax(counts + 10, labels[i]);
}

__global__ void votes(const int* x, int* to) {
  const int i = int(threadIdx.x);
  const int count = __syncthreads_count(x[i] > 0);
  const int any = __syncthreads_or(x[i] == 3), all = __syncthreads_and(x[i] < 4);
  to[i] = count * 100 + any * 10 + all;
}

__global__ void shared_place(int* to) {
  if (to != nullptr) to[0] = SharedMemory().take<int>(1)[0];
}

// The last block to run writes its index; it depends on the order of blocks.
__global__ void last_block(int* to) { to[0] = int(blockIdx.x); }

// --- and with faults

// Every thread reads what its neighbour wrote, with or without a barrier in between.
__global__ void turn_around(const int* x, bool wait, int* y) {
  int* const tile = SharedMemory().take<int>(blockDim.x);
  tile[threadIdx.x] = x[threadIdx.x];
  if (wait) __syncthreads();
  y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

// The first warp waits three times before it writes what the second reads after a single time.
__global__ void overtaking(int* to) {
  int* const x = SharedMemory().take<int>(1);
  *x = 0;
  __syncthreads();
  for (int i = 0; i < (threadIdx.x < 32 ? 3 : 1); ++i) __syncwarp();
  if (threadIdx.x == 0) *x = 1;
  if (threadIdx.x == 32) to[blockIdx.x] = *x;
}
__global__ void barrier_of_half() {
  if (threadIdx.x < 32) __syncthreads();
}
__global__ void two_barriers() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void shuffle_of_half(int* to) {
  if (threadIdx.x < 16) to[threadIdx.x] = __shfl_sync(all_lanes, 1, 0);
}
__global__ void shuffle_from_outside(int* to) {
  if (threadIdx.x < 16) to[threadIdx.x] = __shfl_sync(0x0000ffff, 1, 20);
}
__global__ void shuffle_beside_barrier(int* to) {
  if (threadIdx.x == 7) __syncthreads();
  to[threadIdx.x] = __shfl_sync(all_lanes, 1, 0);
}
__global__ void shuffle_without_self(int* to) { to[threadIdx.x] = __shfl_sync(0x0000fffe, 1, 1); }

}  // namespace

TEST_SUITE("emulated") {

TEST_CASE("emulated: every thread of every block knows its place") {
  DeviceArray<int> to(2 * 3 * 2 * 4 * 3 * 2);
  under_all_orders([&] {
    CHECK(message_of(launch({.grid = {2, 3, 2}, .block = {4, 3, 2}}, places, to.data())) == "");
    const std::vector<int> found = to.values();
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == int(i / 24 * 1000 + i % 24));
  });
}

TEST_CASE("emulated: a softmax by blocks, warps and shared memory") {
  const i64 rows = 5, width = 1000;
  std::vector<double> x;
  for (i64 i = 0; i < rows * width; ++i) x.push_back(std::sin(double(i * i)) * 5);
  std::vector<double> wanted = x;
  for (i64 r = 0; r < rows; ++r) {
    double sum = 0;
    for (i64 i = 0; i < width; ++i) sum += std::exp(x[std::size_t(r * width + i)]);
    for (i64 i = 0; i < width; ++i) {
      wanted[std::size_t(r * width + i)] = std::exp(x[std::size_t(r * width + i)]) / sum;
    }
  }
  const DeviceArray<double> from(x), to(x.size());
  for (const unsigned threads : {64u, 256u, 1024u}) {
    std::vector<double> first;
    under_all_orders([&] {
      const Launch how{.grid = unsigned(rows), .block = threads,
                       .shared = SharedMemory::bytes<double>(threads / 32)};
      REQUIRE(message_of(launch(how, softmax_rows, from.data(), width, to.data())) == "");
      const std::vector<double> found = to.values();
      for (std::size_t i = 0; i < found.size(); ++i) {
        REQUIRE(found[i] == doctest::Approx(wanted[i]).epsilon(1e-12));
      }
      if (first.empty()) first = found;
      CHECK(found == first);  // the same bits in any order of threads
    });
  }
}

TEST_CASE("emulated: shuffles, votes and matches inside a warp") {
  DeviceArray<int> to(64 * 8);
  under_all_orders([&] {
    REQUIRE(message_of(launch({.block = 64}, warp_operations, to.data())) == "");
    const std::vector<int> found = to.values();
    for (int i = 0; i < 64; ++i) {
      const int* const own = found.data() + i * 8;
      const int lane = i % 32, warp = i / 32 * 32;
      CHECK(own[0] == warp + 5);
      CHECK(own[1] == (lane < 3 ? i : i - 3));
      CHECK(own[2] == (lane % 8 + 4 < 8 ? i + 4 : i));
      CHECK(own[3] == (i ^ 9));
      unsigned thirds = 0, sevens = 0;
      for (int l = 0; l < 32; ++l) {
        thirds |= unsigned(l % 3 == 0) << l;
        sevens |= unsigned(l / 7 == lane / 7) << l;
      }
      CHECK(unsigned(own[4]) == thirds);
      CHECK(own[5] == 1);
      CHECK(unsigned(own[6]) == sevens);
      CHECK(own[7] == (lane < 16 ? warp + 15 : 0));
    }
  });
}

TEST_CASE("emulated: barriers that count") {
  std::vector<int> x(96);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = int(i % 4);
  const DeviceArray<int> from(x), to(x.size());
  under_all_orders([&] {
    REQUIRE(message_of(launch({.block = 96}, votes, from.data(), to.data())) == "");
    for (const int found : to.values()) CHECK(found == 72 * 100 + 10 + 1);
  });
}

TEST_CASE("emulated: atomics, and threads that end early") {
  std::vector<int> labels;
  for (int i = 0; i < 100; ++i) labels.push_back(i * i % 7);
  const DeviceArray<int> from(labels), order(labels.size());
  under_all_orders([&] {
    const DeviceArray<int> counts(std::vector<int>(11, 0));
    REQUIRE(message_of(launch({.grid = 4, .block = 32}, count_members, from.data(), 100,
                              counts.data(), order.data())) == "");
    const std::vector<int> found = counts.values(), places = order.values();
    for (int label = 0; label < 7; ++label) {
      const auto size = std::ranges::count(labels, label);
      CHECK(found[std::size_t(label)] == size);
      std::vector<int> own;
      for (std::size_t i = 0; i < labels.size(); ++i) {
        if (labels[i] == label) own.push_back(places[i]);
      }
      std::ranges::sort(own);
      for (std::size_t i = 0; i < own.size(); ++i) CHECK(own[i] == int(i));
    }
    CHECK(found[10] == 4);  // squares are 0, 1, 2 or 4 modulo 7
  });
}

TEST_CASE(
    "emulated: a captured graph does nothing until it is launched, and then as often as wanted") {
  const DeviceArray<int> counts(std::vector<int>(11, 0)), order(4);
  const DeviceArray<int> labels(std::vector<int>{1, 1, 2, 4});
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(launch({.block = 4, .stream = stream}, count_members, labels.data(), 4, counts.data(),
               order.data()) == cudaSuccess);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 8) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(counts.values()[1] == 0);
  REQUIRE(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
  for (int i = 1; i <= 3; ++i) {
    REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
    CHECK(counts.values()[1] == 2 * i);
  }
  cudaGetLastError();
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_CASE("emulated: a launch that no device takes") {
  CHECK(launch({.block = 1025}, barrier_of_half) == cudaErrorInvalidConfiguration);
  CHECK(launch({.grid = 0}, barrier_of_half) == cudaErrorInvalidConfiguration);
  CHECK(launch({.grid = {1, 70000}}, barrier_of_half) == cudaErrorInvalidConfiguration);
  CHECK(launch({.shared = 228 * 1024}, barrier_of_half) == cudaErrorInvalidConfiguration);
  CHECK(launch({.shared = 49 * 1024}, shared_place, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(shared_place, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             228 * 1024) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(shared_place, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             49 * 1024) == cudaSuccess);
  CHECK(launch({.shared = 49 * 1024}, shared_place, nullptr) == cudaSuccess);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE(
    "emulated: a race between threads, or between blocks, gives other bits in another order") {
  std::vector<int> x(64);
  std::iota(x.begin(), x.end(), 0);
  const DeviceArray<int> from(x), to(x.size());
  const auto found = [&](bool wait) {
    const Launch how{.block = 64, .shared = SharedMemory::bytes<int>(64)};
    REQUIRE(message_of(launch(how, turn_around, from.data(), wait, to.data())) == "");
    return to.values();
  };
  std::vector<std::vector<int>> right, racing;
  under_all_orders([&] {
    right.push_back(found(true));
    racing.push_back(found(false));
  });
  std::vector<int> last;
  under_all_orders([&] {
    REQUIRE(message_of(launch({.grid = 64}, last_block, to.data())) == "");
    last.push_back(to.values()[0]);
  });
  CHECK(last[0] == 63);
  CHECK(last[1] == 0);
  for (std::size_t i = 2; i < last.size(); ++i) CHECK((last[i] != 63 && last[i] != 0));
  std::ranges::reverse(x);
  for (const std::vector<int>& values : right) CHECK(values == x);
  for (std::size_t i = 1; i < racing.size(); ++i) CHECK(racing[i] != racing[0]);
}

TEST_CASE("emulated: in random order warps get ahead of others by more than a wait") {
  const DeviceArray<int> to(256);
  const Launch how{.grid = 256, .block = 64, .shared = SharedMemory::bytes<int>(1)};
  REQUIRE(message_of(launch(how, overtaking, to.data())) == "");
  CHECK(std::ranges::count(to.values(), 0) == 256);
  const Ordered scope(emulated::Order::random);
  REQUIRE(message_of(launch(how, overtaking, to.data())) == "");
  CHECK(std::ranges::count(to.values(), 1) > 0);
}

TEST_CASE("emulated: a barrier that not all threads reach") {
  under_all_orders([&] {
    const std::string half = message_of(launch({.grid = 2, .block = 64}, barrier_of_half));
    CHECK(contains(half, ", 0, 0): not all threads reach the same barrier"));
    CHECK(contains(half, "threads 0 … 31: waits at the barrier at emulated.cpp:"));
    CHECK(contains(half, "threads 32 … 63: has ended"));
    const std::string two = message_of(launch({.block = 4}, two_barriers));
    CHECK(contains(two, "thread 0: waits at the barrier at emulated.cpp:"));
  });
}

TEST_CASE("emulated: shuffles from lanes that are not there") {
  const DeviceArray<int> to(64);
  const auto found = [&](void (*kernel)(int*), unsigned threads) {
    return message_of(launch({.block = threads}, kernel, to.data()));
  };
  under_all_orders([&] {
    const std::string half = found(shuffle_of_half, 32);
    CHECK(contains(half, "exchanges at emulated.cpp:"));
    CHECK(contains(half, "which has ended"));
    CHECK(contains(found(shuffle_of_half, 16), "which the block does not have"));
    CHECK(contains(found(shuffle_from_outside, 32),
                        "from lane 20, which its mask 0x0000ffff does not hold"));
    CHECK(contains(found(shuffle_beside_barrier, 32), "with lane 7, which waits at the barrier"));
    CHECK(contains(found(shuffle_without_self, 32), "that does not hold its lane"));
    // The device still works.
    const DeviceArray<int> more(64 * 8);
    CHECK(message_of(launch({.block = 64}, warp_operations, more.data())) == "");
  });
}

TEST_CASE("emulated: what goes beyond its memory is stopped") {
  const auto faults = [](const char* kind) { return run_program(built("tests/faults"), {kind}); };
  CHECK(faults("none").status == 0);
  const bool sanitized = faults("read-behind").status != 0;
  for (const char* kind : {"write-behind", "write-before"}) {
    const ProgramRun run = faults(kind);
    CHECK(run.status != 0);
    CHECK(contains(run.err, sanitized ? "AddressSanitizer" : "a kernel wrote"));
  }
  if (sanitized) CHECK(contains(faults("shared-behind").err, "AddressSanitizer"));
}

}  // TEST_SUITE("emulated")
