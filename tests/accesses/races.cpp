// Hand-made kernels with races and other faults of memory, each found at its line.
#include <string>

#include "doctest/doctest.h"
#include "runtime/cuda/emulated/accesses/recorder.h"
#include "runtime/cuda/loops.h"
#include "tests/emulated/device.h"
#include "tests/orders.h"
#include "tests/program.h"

using namespace weft;

namespace {

constexpr int warp_error = 1, block_error = 2;

constexpr int neighbour_line = __LINE__ + 7;  // the line of the read
__global__ void neighbour(int* to, int wait) {
  __shared__ int tile[64];
  const unsigned i = threadIdx.x;
  tile[i] = int(i);
  if (wait == block_error) __syncthreads();
  if (wait == warp_error) __syncwarp();
  to[i] = tile[i ^ 33];
}

constexpr int lane_line = __LINE__ + 6;
__global__ void lane_neighbour(int* to, bool wait) {
  int* const tile = SharedMemory().take<int>(32);
  const unsigned i = threadIdx.x;
  tile[i] = int(i);
  if (wait) __syncwarp();
  to[i] = tile[i ^ 1];
}

// A shuffle makes lanes wait, and does not order their accesses.
__global__ void shuffled_neighbour(int* to) {
  int* const tile = SharedMemory().take<int>(32);
  const unsigned i = threadIdx.x;
  tile[i] = int(i);
  const int other = __shfl_xor_sync(0xffffffffu, tile[i], 1);
  to[i] = tile[i ^ 1] + other;
}

// Each half of a warp synchronises only with itself.
__global__ void half_neighbour(int* to, int distance) {
  int* const tile = SharedMemory().take<int>(32);
  const unsigned i = threadIdx.x;
  tile[i] = int(i);
  __syncwarp(i < 16 ? 0x0000ffffu : 0xffff0000u);
  to[i] = tile[i ^ unsigned(distance)];
}

// All read a word before one writes it.
__global__ void read_then_written(int* to) {
  int* const word = SharedMemory().take<int>(1);
  if (threadIdx.x == 0) *word = 1;
  __syncthreads();
  to[threadIdx.x] = *word;
  if (threadIdx.x == 7) *word = 2;
}

__global__ void blocks_meet(int* sum, int how) {
  if (how == 0) atomicAdd(sum, 1);
  if (how == 1) *sum += 1;
  if (how == 2 && blockIdx.x == 0) atomicAdd(sum, 1);
  if (how == 2 && blockIdx.x == 1) *sum = 1;
}

// Every block reads what one of them writes.
__global__ void blocks_read(const int* from, int* to) {
  const int value = from[0];
  if (blockIdx.x == gridDim.x - 1) to[0] = value + 1;
}

__global__ void neighbouring_bytes(unsigned char* to) { to[threadIdx.x] = 1; }

__global__ void reads_fresh(const int* from, int* to) { to[threadIdx.x] = from[threadIdx.x]; }
__global__ void reads_unwritten_shared(int* to, unsigned written) {
  int* const tile = SharedMemory().take<int>(64);
  if (threadIdx.x < written) tile[threadIdx.x] = 1;
  __syncthreads();
  to[threadIdx.x] = tile[threadIdx.x];
}

struct alignas(16) Vector {
  float x, y, z, w;
};
__global__ void reads_vector(const float* from, int offset, float* to) {
  const Vector v = *reinterpret_cast<const Vector*>(from + offset + 4 * threadIdx.x);
  to[threadIdx.x] = v.x + v.y + v.z + v.w;
}

// What the compiler generates for a struct without an alignment of its own, and for memcpy.
struct Triple {
  float x[3];
};
__global__ void copies(const Triple* from, Triple* to, int bytes) {
  to[threadIdx.x] = from[threadIdx.x];
  std::memcpy(to + 100, from, std::size_t(bytes));
}

std::string found(cudaError_t error) { return message_of(error); }
int count_of(const std::string& text, const std::string& word) {
  int count = 0;
  for (std::size_t i = text.find(word); i != text.npos; i = text.find(word, i + 1)) ++count;
  return count;
}

const DeviceArray<int> zeros(std::vector<int>(1024, 0));

}  // namespace

TEST_SUITE("accesses") {

TEST_CASE("accesses: threads of a block race where no barrier is between") {
  under_other_orders([&] {
    CHECK(found(launch({.block = 64}, neighbour, zeros.data(), block_error)) == "");
    for (const int wait : {0, warp_error}) {
      const std::string message = found(launch({.block = 64}, neighbour, zeros.data(), wait));
      CAPTURE(message);
      CHECK(contains(message, "race: "));
      CHECK(contains(message, " of neighbour "));
      CHECK(contains(message, "tests/accesses/races.cpp:" + std::to_string(neighbour_line)));
      CHECK(contains(message, "tests/accesses/races.cpp:" + std::to_string(neighbour_line - 3)));
      CHECK(contains(message, " of __shared__ tile, which thread "));
      CHECK(contains(message, "with no __syncthreads between"));
    }
  });
}

TEST_CASE("accesses: lanes of a warp race where no __syncwarp of both is between") {
  const auto run = [&](auto kernel, auto... more) {
    return found(launch({.block = 32, .shared = 128}, kernel, zeros.data(), more...));
  };
  under_other_orders([&] {
    CHECK(run(lane_neighbour, true) == "");
    const std::string message = run(lane_neighbour, false);
    CAPTURE(message);
    CHECK(contains(message, "tests/accesses/races.cpp:" + std::to_string(lane_line)));
    CHECK(contains(message, "with no __syncwarp between"));
    CHECK(contains(message, "of the 128 bytes of shared memory that the launch asked for"));
    CHECK(contains(run(shuffled_neighbour), "with no __syncwarp between"));
    CHECK(run(half_neighbour, 1) == "");
    CHECK(contains(run(half_neighbour, 16), "with no __syncwarp between"));
  });
}

TEST_CASE("accesses: a write races with any of the reads before it") {
  under_other_orders([&] {
    const Launch how{.block = 64, .shared = 16};
    CHECK(contains(found(launch(how, read_then_written, zeros.data())), "race: "));
  });
}

TEST_CASE("accesses: blocks race where they touch the same bytes, unless both do it atomically") {
  under_other_orders([&] {
    CHECK(found(launch({.grid = 3}, blocks_meet, zeros.data(), 0)) == "");
    const std::string plain = found(launch({.grid = 3}, blocks_meet, zeros.data(), 1));
    CAPTURE(plain);
    CHECK(contains(plain, "of block ("));
    CHECK(contains(plain, "element 0 of 4 bytes of an allocation of 4096 bytes"));
    CHECK(contains(plain, "with no end of the kernel between"));
    CHECK(contains(found(launch({.grid = 2}, blocks_meet, zeros.data(), 2)), "race: "));
    CHECK(contains(found(launch({.grid = 4, .block = 64}, blocks_read, zeros.data(), zeros.data())),
                   "race: "));
  });
}

TEST_CASE("accesses: neighbouring bytes of a word do not race") {
  const DeviceArray<unsigned char> bytes(64);
  CHECK(found(launch({.block = 64}, neighbouring_bytes, bytes.data())) == "");
}

TEST_CASE("accesses: reads of what nobody has written") {
  const DeviceArray<int> fresh(64);
  const std::string message = found(launch({.block = 32}, reads_fresh, fresh.data(), zeros.data()));
  CAPTURE(message);
  CHECK(contains(message, "unwritten: tests/accesses/races.cpp:"));
  CHECK(contains(message,
                 "thread 0 of block (0, 0, 0) of reads_fresh reads element 0 of 4 bytes of "
                 "an allocation of 256 bytes, which was never written"));
  CHECK(count_of(message, "\n") == 0);  // one report for each line
  cudaMemsetAsync(fresh.data(), 0, 128, nullptr);
  CHECK(found(launch({.block = 32}, reads_fresh, fresh.data(), zeros.data())) == "");
  CHECK(contains(found(launch({.block = 33}, reads_fresh, fresh.data(), zeros.data())),
                 "element 32 of 4 bytes"));
  // A copy of uninitialised bytes is uninitialised, and so is an allocation filled with 0xff.
  const DeviceArray<int> copy(64);
  cudaMemcpyAsync(copy.data(), fresh.data(), 256, cudaMemcpyDeviceToDevice, nullptr);
  CHECK(found(launch({.block = 32}, reads_fresh, copy.data(), zeros.data())) == "");
  CHECK(
      contains(found(launch({.block = 33}, reads_fresh, copy.data(), zeros.data())), "unwritten"));
  cudaMemsetAsync(copy.data(), 0xff, 256, nullptr);
  CHECK(
      contains(found(launch({.block = 32}, reads_fresh, copy.data(), zeros.data())), "unwritten"));

  const Launch how{.grid = 2, .block = 64, .shared = 256};
  CHECK(found(launch(Launch{.block = 64, .shared = 256}, reads_unwritten_shared, zeros.data(),
                     64u)) == "");
  CHECK(contains(found(launch(how, reads_unwritten_shared, zeros.data(), 60u)), "unwritten: "));
}

TEST_CASE("accesses: a vector at an address that is no multiple of its bytes; and outside") {
  const DeviceArray<float> from(std::vector<float>(128, 1.f)), to(32);
  CHECK(found(launch({.block = 31}, reads_vector, from.data(), 4, to.data())) == "");
  const std::string message = found(launch({.block = 31}, reads_vector, from.data(), 2, to.data()));
  CHECK(contains(message, "misaligned: tests/accesses/races.cpp:"));
  CHECK(contains(message, "8 bytes after a multiple of 16"));
  CHECK(contains(found(launch({.block = 32}, reads_vector, from.data(), 4, to.data())),
                 "outside: tests/accesses/races.cpp:"));
}

TEST_CASE("accesses: copies of structs and memcpy are seen") {
  const DeviceArray<Triple> from(128), to(128);
  cudaMemsetAsync(from.data(), 0, 12 * 8, nullptr);
  CHECK(found(launch({.block = 1}, copies, from.data(), to.data(), 96)) == "");
  CHECK(found(launch({.block = 8}, copies, from.data(), to.data(), 0)) == "");
  // All threads copy to the same address.
  CHECK(contains(found(launch({.block = 8}, copies, from.data(), to.data(), 48)),
                 "race: tests/accesses/races.cpp:"));
  CHECK(contains(found(launch({.grid = 2}, copies, from.data(), to.data(), 0)),
                 "race: tests/accesses/races.cpp:"));
}

}  // TEST_SUITE("accesses")
