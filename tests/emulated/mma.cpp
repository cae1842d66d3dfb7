// Tensor-core instructions and asynchronous copies on the emulated device.
#include <bit>
#include <cmath>
#include <numeric>

#include "doctest/doctest.h"
#include "runtime/cuda/mma.cuh"
#include "runtime/dtype.h"
#include "runtime/random.h"
#include "tests/emulated/device.h"
#include "tests/orders.h"
#include "tests/program.h"

using namespace weft;

namespace {

constexpr int m16 = 16, n8 = 8, k16 = 16;

__device__ std::uint32_t both(bf16 low, bf16 high) {
  return low.bits | std::uint32_t{high.bits} << 16;
}

// c [16, 8] += a [16, 16] b [16, 8], each register from where the PTX ISA says that it is.
__global__ void product(const bf16* a, const bf16* b, float* c) {
  const unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
  const auto of_a = [&](unsigned row, unsigned column) {
    return both(a[row * k16 + column], a[row * k16 + column + 1]);
  };
  const auto of_b = [&](unsigned row) { return both(b[row * n8 + g], b[(row + 1) * n8 + g]); };
  const std::uint32_t left[4] = {of_a(g, 2 * t), of_a(g + 8, 2 * t), of_a(g, 2 * t + 8),
                                 of_a(g + 8, 2 * t + 8)};
  float sums[4];
  for (unsigned i = 0; i < 4; ++i) sums[i] = c[(g + i / 2 * 8) * n8 + 2 * t + i % 2];
  mma_m16n8k16(sums, left, of_b(2 * t), of_b(2 * t + 8));
  for (unsigned i = 0; i < 4; ++i) c[(g + i / 2 * 8) * n8 + 2 * t + i % 2] = sums[i];
}

// c [16, 8] = rounded(a [16, 16] b^T [16, 16]) d [16, 8], b row by row as [n, k]; what ldmatrix
// loads, and the first product as the left side of the second.
__global__ void two_products(const bf16* a, const bf16* b, const bf16* d, float* c) {
  SharedMemory shared;
  bf16* const tile_a = shared.take<bf16>(m16 * k16);
  bf16* const tile_b = shared.take<bf16>(16 * k16);
  bf16* const tile_d = shared.take<bf16>(k16 * n8 * 2);
  const unsigned lane = threadIdx.x;
  cp_async(tile_a + 8 * lane, a + 8 * lane, 16);
  cp_async(tile_b + 8 * lane, b + 8 * lane, 16);
  cp_async(tile_d + 8 * lane, d + 8 * lane, lane < 16 ? 16 : 0);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();
  std::uint32_t left[4], right[4];
  ldmatrix_x4(left, tile_a + lane % 16 * k16 + lane / 16 * 8);
  ldmatrix_x4(right, tile_b + (lane / 16 * 8 + lane % 8) * k16 + lane / 8 % 2 * 8);
  float first[2][4] = {}, second[4] = {};
  mma_m16n8k16(first[0], left, right[0], right[1]);
  mma_m16n8k16(first[1], left, right[2], right[3]);
  const std::uint32_t next[4] = {pack(first[0][0], first[0][1]), pack(first[0][2], first[0][3]),
                                 pack(first[1][0], first[1][1]), pack(first[1][2], first[1][3])};
  ldmatrix_x4_trans(right, tile_d + lane * n8);
  mma_m16n8k16(second, next, right[0], right[1]);
  for (unsigned i = 0; i < 4; ++i) {
    c[(lane / 4 + i / 2 * 8) * n8 + 2 * (lane % 4) + i % 2] = second[i];
  }
}

// Registers of the four matrices that begin at rows 0, 8, 16, 24 of 32 rows of 8.
__global__ void matrices(const std::uint16_t* from, bool trans, std::uint32_t* to) {
  std::uint16_t* const tile = SharedMemory().take<std::uint16_t>(256);
  for (unsigned i = 0; i < 8; ++i) tile[8 * threadIdx.x + i] = from[8 * threadIdx.x + i];
  __syncwarp();
  std::uint32_t m[4];
  const std::uint16_t* const row = tile + 8 * threadIdx.x;
  trans ? ldmatrix_x4_trans(m, row) : ldmatrix_x4(m, row);
  for (unsigned i = 0; i < 4; ++i) to[4 * threadIdx.x + i] = m[i];
}

// What a thread finds in two copies, each a group, when it has waited for the first.
__global__ void groups(const std::uint16_t* from, unsigned bytes, std::uint16_t* to) {
  std::uint16_t* const tile =
      SharedMemory().take<std::uint16_t>(16 * blockDim.x) + 16 * threadIdx.x;
  for (unsigned half = 0; half < 2; ++half) {
    cp_async(tile + 8 * half, from + 16 * threadIdx.x + 8 * half, bytes);
    cp_async_commit();
  }
  cp_async_wait<1>();
  for (unsigned i = 0; i < 16; ++i) to[32 * threadIdx.x + i] = tile[i];
  cp_async_wait<0>();
  for (unsigned i = 0; i < 16; ++i) to[32 * threadIdx.x + 16 + i] = tile[i];
}

// --- and with faults

__global__ void product_of_half() {
  float c[4] = {};
  const std::uint32_t a[4] = {};
  if (threadIdx.x < 16) mma_m16n8k16(c, a, 0, 0);
}
__global__ void products_apart() {
  float c[4] = {};
  const std::uint32_t a[4] = {};
  if (threadIdx.x < 16) {
    mma_m16n8k16(c, a, 0, 0);
  } else {
    mma_m16n8k16(c, a, 0, 0);
  }
}
__global__ void matrix_of_half() {
  std::uint32_t m[4];
  bf16* const tile = SharedMemory().take<bf16>(256);
  if (threadIdx.x < 16) ldmatrix_x4(m, tile + 8 * threadIdx.x);
}
__global__ void shifted_row() {
  std::uint32_t m[4];
  bf16* const tile = SharedMemory().take<bf16>(256 + 8);
  ldmatrix_x4(m, tile + 8 * threadIdx.x + (threadIdx.x == 9 ? 4 : 0));
}
__global__ void shifted_copy(const bf16* from, int to_shift, int from_shift, unsigned bytes) {
  bf16* const tile = SharedMemory().take<bf16>(32);
  cp_async(tile + to_shift, from + from_shift, bytes);
}

enum Waits { none, uncommitted, another, all };
__global__ void matrix_of_copy(const bf16* from, int waits) {
  std::uint32_t m[4];
  bf16* const tile = SharedMemory().take<bf16>(256);
  cp_async(tile + 8 * threadIdx.x, from + 8 * threadIdx.x, 16);
  if (waits != uncommitted) cp_async_commit();
  if (waits == another) {
    cp_async_wait<1>();
  } else if (waits != none) {
    cp_async_wait<0>();
  }
  __syncwarp();
  ldmatrix_x4(m, tile + 8 * threadIdx.x);
}
__global__ void copied_twice(const bf16* from) {
  bf16* const tile = SharedMemory().take<bf16>(8);
  cp_async(tile, from, 16);
  cp_async(tile, from, 16);
}

std::vector<bf16> narrow_numbers(std::size_t count, std::uint64_t seed) {
  std::vector<bf16> numbers;
  for (std::size_t i = 0; i < count; ++i) {
    numbers.emplace_back(float(std::sin(double(i * i + 1) * double(seed) * 0.37) * 3));
  }
  return numbers;
}

// Each of the 16 × 8 sums of `depth` products, in f64, and the sums of their magnitudes.
struct Exact {
  double sum = 0, magnitude = 0;

  void add(double a, double b) { sum += a * b, magnitude += std::abs(a * b); }
};
double wide(bf16 x) { return double(float(x)); }
const double unit = std::ldexp(1, -24), half_unit = std::ldexp(1, -8);  // of f32, of bf16

}  // namespace

TEST_SUITE("emulated") {

TEST_CASE("mma: a product of fragments is the product of the matrices") {
  const std::vector<bf16> a = narrow_numbers(m16 * k16, 1), b = narrow_numbers(k16 * n8, 2);
  std::vector<float> before;
  for (int i = 0; i < m16 * n8; ++i) before.push_back(float(std::cos(i)));
  const DeviceArray<bf16> left(a), right(b);
  under_other_orders([&] {
    const DeviceArray<float> c(before);
    REQUIRE(message_of(launch({.block = 32}, product, left.data(), right.data(), c.data())) == "");
    const std::vector<float> found = c.values();
    for (std::size_t i = 0; i < found.size(); ++i) {
      Exact wanted;
      wanted.add(double(before[i]), 1);
      for (std::size_t k = 0; k < k16; ++k) {
        wanted.add(wide(a[i / n8 * k16 + k]), wide(b[k * n8 + i % n8]));
      }
      CHECK(std::abs(double(found[i]) - wanted.sum) <= k16 * unit * wanted.magnitude);
    }
  });
}

TEST_CASE("mma: fragments by ldmatrix, and one product as the left side of the next") {
  const std::vector<bf16> a = narrow_numbers(m16 * k16, 3), b = narrow_numbers(16 * k16, 4);
  const std::vector<bf16> d = narrow_numbers(k16 * n8, 5);
  const DeviceArray<bf16> left(a), right(b), more(narrow_numbers(2 * k16 * n8, 5));
  const DeviceArray<float> c(m16 * n8);
  const Launch how{.block = 32, .shared = 3 * SharedMemory::bytes<bf16>(256)};
  under_other_orders([&] {
    REQUIRE(message_of(
                launch(how, two_products, left.data(), right.data(), more.data(), c.data())) == "");
    const std::vector<float> found = c.values();
    for (std::size_t i = 0; i < found.size(); ++i) {
      Exact wanted;
      double inner = 0;  // the error of the first product: a sum in f32, rounded to bf16
      for (std::size_t n = 0; n < 16; ++n) {
        Exact weight;
        for (std::size_t k = 0; k < k16; ++k) {
          weight.add(wide(a[i / n8 * k16 + k]), wide(b[n * k16 + k]));
        }
        const double value = wide(d[n * n8 + i % n8]);
        wanted.add(weight.sum, value);
        inner += (half_unit * std::abs(weight.sum) + 2 * k16 * unit * weight.magnitude) *
                 std::abs(value);
      }
      const double bound = inner + k16 * unit * (wanted.magnitude + inner);
      CHECK(std::abs(double(found[i]) - wanted.sum) <= bound);
    }
  });
}

TEST_CASE("mma: what ldmatrix gives to each lane") {
  std::vector<std::uint16_t> numbers(256);
  std::iota(numbers.begin(), numbers.end(), std::uint16_t{0});
  const DeviceArray<std::uint16_t> from(numbers);
  const DeviceArray<std::uint32_t> to(128);
  for (const bool trans : {false, true}) {
    under_other_orders([&] {
      REQUIRE(message_of(launch({.block = 32, .shared = 512}, matrices, from.data(), trans,
                                to.data())) == "");
      const std::vector<std::uint32_t> found = to.values();
      for (unsigned lane = 0; lane < 32; ++lane) {
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned matrix = 0; matrix < 4; ++matrix) {
          const unsigned begin = 64 * matrix, by = trans ? 8 : 1;
          const unsigned low = begin + (trans ? 16 * t + g : 8 * g + 2 * t);
          CHECK(found[4 * lane + matrix] == (low | (low + by) << 16));
        }
      }
    });
  }
}

TEST_CASE("mma: two floats rounded into one register") {
  CHECK(pack(1.f, -2.f) == 0xc0003f80u);
  CHECK(pack(1 + std::ldexp(1.f, -8), 1 + 3 * std::ldexp(1.f, -8)) == 0x3f823f80u);  // to even
  CHECK(std::isnan(float(std::bit_cast<bf16>(static_cast<std::uint16_t>(pack(NAN, 0))))));
}

TEST_CASE("cp.async: bytes arrive at the wait for their group, and zeros behind them") {
  std::vector<std::uint16_t> numbers(64 * 16);
  std::iota(numbers.begin(), numbers.end(), std::uint16_t{1});
  const DeviceArray<std::uint16_t> from(numbers), to(64 * 32);
  for (const unsigned bytes : {16u, 6u, 0u}) {
    under_other_orders([&] {
      const Launch how{.block = 64, .shared = 64 * 32};
      REQUIRE(message_of(launch(how, groups, from.data(), bytes, to.data())) == "");
      const std::vector<std::uint16_t> found = to.values();
      for (std::size_t i = 0; i < found.size(); ++i) {
        const std::size_t place = i % 16, thread = i / 32;
        const std::uint16_t whole =
            2 * (place % 8) < bytes ? numbers[16 * thread + place] : std::uint16_t{0};
        CHECK(found[i] == (i % 32 < 16 && place >= 8 ? 0xffff : whole));
      }
    });
  }
}

TEST_CASE("mma: lanes that do not take part") {
  under_other_orders([&] {
    CHECK(contains(message_of(launch({.block = 32}, product_of_half)), "which has ended"));
    CHECK(contains(message_of(launch({.block = 16}, product_of_half)),
                   "which the block does not have"));
    CHECK(contains(message_of(launch({.block = 32}, products_apart)),
                   "is at the exchange at mma.cpp:"));
    CHECK(contains(message_of(launch({.block = 32, .shared = 512}, matrix_of_half)),
                   "which has ended"));
  });
}

TEST_CASE("mma: addresses that are no multiples of 16") {
  const DeviceArray<bf16> from(narrow_numbers(64, 1));
  const Launch how{.block = 32, .shared = 1024};
  const std::string row = message_of(launch(how, shifted_row));
  CHECK(contains(row, "thread 9 calls ldmatrix at mma.cpp:"));
  CHECK(contains(row, "with an address that is 8 bytes after a multiple of 16"));
  const auto copied = [&](int to_shift, int from_shift, unsigned bytes) {
    return message_of(
        launch({.shared = 64}, shifted_copy, from.data(), to_shift, from_shift, bytes));
  };
  CHECK(copied(8, 16, 16) == "");
  CHECK(contains(copied(1, 0, 16), "calls cp.async at mma.cpp:"));
  CHECK(contains(copied(0, 2, 16), "with an address that is 4 bytes after a multiple of 16"));
  CHECK(contains(copied(0, 0, 17), "for 17 bytes of 16"));
}

TEST_CASE("mma: shared memory that a copy is still filling") {
  const DeviceArray<bf16> from(narrow_numbers(256, 1));
  const Launch how{.block = 32, .shared = 512};
  under_other_orders([&] {
    CHECK(message_of(launch(how, matrix_of_copy, from.data(), all)) == "");
    for (const Waits waits : {none, uncommitted, another}) {
      const std::string message = message_of(launch(how, matrix_of_copy, from.data(), waits));
      CAPTURE(message);
      CHECK(contains(message, "calls ldmatrix at mma.cpp:"));
      CHECK(contains(message, "on shared memory that the cp.async of thread "));
      CHECK(contains(message, "is still filling: no wait between"));
    }
    CHECK(contains(message_of(launch({.shared = 16}, copied_twice, from.data())),
                   "is still filling"));
  });
}

}  // TEST_SUITE("emulated")
