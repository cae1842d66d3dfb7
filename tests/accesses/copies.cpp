// Asynchronous copies and ldmatrix among the accesses that are seen: reads before the wait, races
// behind it, sectors and bank conflicts.
#include <string>

#include "doctest/doctest.h"
#include "runtime/cuda/mma.cuh"
#include "tests/accesses/counted.h"
#include "tests/emulated/device.h"
#include "tests/orders.h"
#include "tests/program.h"

using namespace weft;
using emulated::accesses::Counts;
using emulated::accesses::Space;

namespace {

// What a thread waits for before it reads what thread `i ^ other` copied.
constexpr int nothing = 0, own_wait = 1, barrier_alone = 2, wait_and_barrier = 3;

constexpr int copied_line = __LINE__ + 4, read_line = __LINE__ + 10;
__global__ void copied_neighbour(const int* from, int* to, int waits, unsigned other) {
  int* const tile = SharedMemory().take<int>(256);
  const unsigned i = threadIdx.x;
  cp_async(tile + 4 * i, from + 4 * i, 16);
  cp_async_commit();
  if (waits == own_wait || waits == wait_and_barrier) {
    cp_async_wait<0>();
  }
  if (waits == barrier_alone || waits == wait_and_barrier) __syncthreads();
  to[i] = tile[4 * (i ^ other)];
}

// A copy into what another thread has just read.
__global__ void copied_over(const int* from, int* to, bool barrier) {
  int* const tile = SharedMemory().take<int>(256);
  const unsigned i = threadIdx.x;
  tile[4 * i] = int(i);
  __syncthreads();
  to[i] = tile[4 * (i ^ 33)];
  if (barrier) __syncthreads();
  cp_async(tile + 4 * i, from + 4 * i, 16);
  cp_async_commit();
  cp_async_wait<0>();
}

__global__ void written_over(const int* from) {
  int* const tile = SharedMemory().take<int>(4);
  cp_async(tile, from, 16);
  tile[1] = 3;
}

__global__ void fresh_copy(const int* from, unsigned bytes) {
  cp_async(SharedMemory().take<int>(4), from, bytes);
  cp_async_commit();
  cp_async_wait<0>();
}

// Rows `stride` bytes apart, each written by the lane that names it or by another one.
__global__ void matrix(int stride, int shift, bool wait, std::uint32_t* to) {
  auto* const tile = reinterpret_cast<unsigned char*>(SharedMemory().take<int>(32 * 64));
  const auto row = [&](unsigned lane) { return tile + int(lane) * stride; };
  for (int i = 0; i < 4; ++i) {
    reinterpret_cast<int*>(row((threadIdx.x + unsigned(shift)) % 32))[i] = int(threadIdx.x);
  }
  if (wait) __syncwarp();
  std::uint32_t m[4];
  ldmatrix_x4(m, row(threadIdx.x));
  to[threadIdx.x] = m[0] + m[1] + m[2] + m[3];
}
__global__ void reads_rows(int stride) {
  auto* const tile = reinterpret_cast<unsigned char*>(SharedMemory().take<int>(32 * 64));
  std::uint32_t m[4];
  ldmatrix_x4_trans(m, tile + int(threadIdx.x) * stride);
}

__global__ void copies_rows(const int* from, int stride, int shared_stride) {
  int* const tile = SharedMemory().take<int>(32 * 64);
  cp_async(tile + int(threadIdx.x) * shared_stride, from + int(threadIdx.x) * stride, 16);
  cp_async_commit();
  cp_async_wait<0>();
}

const DeviceArray<int> numbers(std::vector<int>(4096, 7));
const Launch one_warp{.block = 32, .shared = 32 * 64 * 4};

}  // namespace

TEST_SUITE("accesses") {

TEST_CASE("copies: what is still being filled is neither read nor written") {
  const DeviceArray<int> to(64);
  const auto run = [&](int waits, unsigned other) {
    return message_of(launch({.block = 64, .shared = 1024}, copied_neighbour, numbers.data(),
                             to.data(), waits, other));
  };
  under_other_orders([&] {
    CHECK(run(wait_and_barrier, 33) == "");
    CHECK(run(own_wait, 0) == "");
    for (const auto& [waits, other] : {std::pair{nothing, 0u}, {barrier_alone, 33u}}) {
      const std::string message = run(waits, other);
      CAPTURE(message);
      CHECK(
          contains(message, "unfinished: tests/accesses/copies.cpp:" + std::to_string(read_line)));
      CHECK(contains(message, "which the cp.async of thread "));
      CHECK(contains(message, "tests/accesses/copies.cpp:" + std::to_string(copied_line) +
                                  " is still filling, with no wait between"));
    }
    CHECK(contains(run(own_wait, 33), "with no __syncthreads between"));
    CHECK(
        contains(message_of(launch({.shared = 16}, written_over, numbers.data())), "unfinished: "));
  });
}

TEST_CASE("copies: a copy writes from its beginning on, and reads what was written") {
  const DeviceArray<int> to(64), fresh(64);
  const Launch how{.block = 64, .shared = 1024};
  under_other_orders([&] {
    CHECK(message_of(launch(how, copied_over, numbers.data(), to.data(), true)) == "");
    const std::string message =
        message_of(launch(how, copied_over, numbers.data(), to.data(), false));
    CHECK(contains(message, "race: "));
    CHECK(contains(message, "with no __syncthreads between"));
  });
  CHECK(contains(message_of(launch({.shared = 16}, fresh_copy, fresh.data(), 16u)), "unwritten: "));
  CHECK(message_of(launch({.shared = 16}, fresh_copy, fresh.data(), 0u)) == "");
}

TEST_CASE("copies: ldmatrix reads the rows that its lanes name") {
  const DeviceArray<std::uint32_t> to(32);
  const auto run = [&](int shift, bool wait) {
    return message_of(launch(one_warp, matrix, 16, shift, wait, to.data()));
  };
  under_other_orders([&] {
    CHECK(run(5, true) == "");
    const std::string message = run(5, false);
    CAPTURE(message);
    CHECK(contains(message, "race: tests/accesses/copies.cpp:"));
    CHECK(contains(message, "with no __syncwarp between"));
    CHECK(contains(message_of(launch(one_warp, reads_rows, 16)), "unwritten: "));
  });
}

TEST_CASE("copies: sectors and bank conflicts of ldmatrix and cp.async") {
  const auto of_rows = [&](int stride) {
    return counted(Space::shared,
                   [&] { REQUIRE(message_of(launch(one_warp, reads_rows, stride)) == ""); });
  };
  const Counts together = of_rows(16);
  CHECK(together.requests == 1);
  CHECK(together.passes == 4);  // one for each matrix
  CHECK(together.least_passes == 4);
  CHECK(of_rows(32).passes == 8);
  CHECK(of_rows(128).passes == 32);
  CHECK(of_rows(144).passes == 4);
  const auto copied = [&](Space space, int stride, int shared_stride) {
    return counted(space, [&] {
      REQUIRE(message_of(launch(one_warp, copies_rows, numbers.data(), stride, shared_stride)) ==
              "");
    });
  };
  CHECK(copied(Space::global, 4, 4).requests == 1);
  CHECK(copied(Space::global, 4, 4).sectors == 16);
  CHECK(copied(Space::global, 8, 4).sectors == 32);
  CHECK(copied(Space::shared, 4, 4).passes == 4);
  CHECK(copied(Space::shared, 4, 32).passes == 32);
}

}  // TEST_SUITE("accesses")
