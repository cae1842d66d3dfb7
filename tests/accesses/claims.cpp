// What comments of shared pieces of kernels claim about their accesses: no bank conflicts, no
// sector moved for nothing.
#include <string>

#include "doctest/doctest.h"
#include "ops/attention/lsh/tiles.cuh"
#include "ops/attention/mma_tile.cuh"
#include "ops/attention/score_tile.cuh"
#include "tests/accesses/counted.h"
#include "tests/emulated/device.h"

using namespace weft;
using emulated::accesses::Counts;
using emulated::accesses::Space;

namespace {

constexpr int side = tile_columns, most_columns = 8 * 16;

// Every lane of a row of scores has its words of `width` columns.
template <class T, int C>
__global__ void copy_owned(T* from, T* to, i64 width, i64 stride) {
  for (int row = tile_y(); row < side; row += 8) {
    T x[C] = {};
    const i64 begin = row * width * stride;
    load_owned(ElementRow<T>{from + begin, stride, width}, 0, x);
    store_owned(x, ElementRow<T>{to + begin, stride, width}, 0);
  }
}

// A tile of rows goes to shared memory.
template <class T>
__global__ void load(View<const T, 4> x, int padded) {
  T* const to = SharedMemory().take<T>(side * row_stride<T>(padded));
  load_tile(x, {0, 0, 0, side}, side, 0, padded, T(1), to, row_stride<T>(padded));
}

// As sums_of_chunks does, and rows_of_chunks.
template <class T>
__global__ void turn(View<const T, 4> x, int stride) {
  T* const to = SharedMemory().take<T>(side * stride);
  load_turned(side, to, stride, [&](int i, int e) { return x(0, i, 0, e); });
}

// The products of two tiles, weights, and what these weigh: all in shared memory.
template <class T, int R, int C>
__global__ void multiply(int padded) {
  SharedMemory shared;
  const int stride = row_stride<T>(padded);
  T* const a = shared.take<T>(8 * R * stride);
  T* const b = shared.take<T>(side * stride);
  T* const weights = shared.take<T>(8 * R * weight_stride<T>);
  T* const values = shared.take<T>(side * row_stride<T>(16 * C));
  T z[R][4] = {}, o[R][C] = {};
  add_products<R>(a, b, stride, padded, z);
  store_weights<R>(z, weights);
  __syncwarp();
  add_weighted<R, C>(weights, values, row_stride<T>(16 * C), side, o);
  if (o[0][0] == T(12345)) a[0] = z[0][0];
}

// Rows that lie anywhere, and their weights.
template <class T>
__global__ void lsh_tile(const T* x, i64 width) {
  namespace lsh = lsh_detail;
  __shared__ lsh::Operands<T> operands;
  __shared__ lsh::Weights<T> weights;
  for (unsigned i = threadIdx.x; i < lsh::streamed_rows; i += lsh::tile_threads) {
    operands.other[i] = int(i);
    if (i < lsh::owned_rows) operands.own[i] = int(i);
  }
  const lsh::Rows<T> rows{x, width, 1, width};
  T z[4][4] = {};
  lsh::add_products(operands, lsh::owned_rows, rows, rows, z);
  lsh::store_weights(weights, z);
  lsh::add_weighted(operands, lsh::owned_rows, weights, rows, 0, z);
}

// Both products of a tile in bf16, and the rows that they give.
template <int W, int G>
__global__ void multiply_in_fragments(View<const bf16, 4> x, View<bf16, 4> to) {
  SharedMemory shared;
  const MmaRows<W> a(shared, G), b(shared);
  for (int first = 0; first < G * side; first += side) {
    load_rows(x, {0, 0, first, side}, a.from(first));
  }
  load_rows(x, {0, 0, 0, side}, b);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  ScoreFragment<side, G> z;
  WeightedRows<W, G> o;
  add_products(a, b, 0, z);
  add_weighted(z, b, 0, o);
  store_rows(o, {0, 0, 0, G * side}, a, to);
}

template <class T>
const DeviceArray<T>& memory() {
  static const DeviceArray<T> numbers(std::vector<T>(side * 256, T(1)));
  return numbers;
}

template <class T>
View<const T, 4> rows_of(i64 width, i64 count = side) {
  return {memory<T>().data(), {1, count, 1, width}, {count * width, width, width, 1}};
}

template <class... P, class... A>
void run(std::size_t shared, void (*kernel)(P...), const A&... arguments) {
  REQUIRE(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)) ==
          cudaSuccess);
  REQUIRE(message_of(launch({.block = tile_threads, .shared = shared}, kernel, arguments...)) ==
          "");
}

template <class F>
void check_coalesced(const F& f) {
  const Counts counts = counted(Space::global, f);
  CHECK(counts.requests > 0);
  CHECK(counts.sectors == counts.least_sectors);
}
template <class F>
void check_free_of_conflicts(const F& f) {
  const Counts counts = counted(Space::shared, f);
  CHECK(counts.requests > 0);
  CHECK(counts.passes == counts.least_passes);
}

}  // namespace

TEST_SUITE("accesses") {

TEST_CASE_TEMPLATE("claims: rows of tiles go between memory and registers by whole sectors", T,
                   float, double) {
  const DeviceArray<T> to(side * 256);
  const auto copied = [&](auto kernel, i64 width, i64 stride) {
    return [=, &to] { run(0, kernel, memory<T>().data(), to.data(), width, stride); };
  };
  check_coalesced(copied(copy_owned<T, 1>, 16, 1));
  check_coalesced(copied(copy_owned<T, 2>, 32, 1));
  check_coalesced(copied(copy_owned<T, 4>, 64, 1));
  check_coalesced(copied(copy_owned<T, 8>, 128, 1));
  // Rows that are no words, and elements apart, are moved element by element.
  const auto twice = [&](const auto& f) {
    const Counts counts = counted(Space::global, f);
    CHECK(counts.sectors > counts.least_sectors);
  };
  twice(copied(copy_owned<T, 2>, 31, 1));
  twice(copied(copy_owned<T, 2>, 32, 2));
  CHECK(to.values()[2 * 31] == 1);
}

TEST_CASE_TEMPLATE("claims: tiles are loaded and turned without conflicts", T, float, double) {
  for (const int width : {32, 64, most_columns}) {
    CAPTURE(width);
    const auto loaded = [&] {
      run(sizeof(T) * side * row_stride<T>(width), load<T>, rows_of<T>(width), width);
    };
    check_coalesced(loaded);
    check_free_of_conflicts(loaded);
  }
  for (const int stride : {weight_stride<T>, row_stride<T>(side)}) {
    CAPTURE(stride);
    const auto turned = [&] { run(sizeof(T) * side * stride, turn<T>, rows_of<T>(side), stride); };
    check_coalesced(turned);
    check_free_of_conflicts(turned);
  }
}

TEST_CASE_TEMPLATE("claims: products of tiles of scores have no conflicts", T, float, double) {
  constexpr int R = long_rows<T>;
  for (const int padded : {4, 8, 32, 64}) {
    CAPTURE(padded);
    const auto products = [&](auto kernel) { return [=] { run(200 * 1024, kernel, padded); }; };
    check_free_of_conflicts(products(multiply<T, R, 1>));
    check_free_of_conflicts(products(multiply<T, R, 2>));
    check_free_of_conflicts(products(multiply<T, R, 4>));
    check_free_of_conflicts(products(multiply<T, 1, 2>));
  }
}

template <int W, int G = 1>
void check_fragments() {
  CAPTURE(W);
  CAPTURE(G);
  const DeviceArray<bf16> to(side * 256);
  const View<bf16, 4> rows{to.data(), {1, G * side, 1, W}, {G * side * W, W, W, 1}};
  const auto products = [&] {
    run((G + 1) * MmaRows<W>::bytes(), multiply_in_fragments<W, G>, rows_of<bf16>(W, G * side),
        rows);
  };
  check_coalesced(products);
  check_free_of_conflicts(products);
}

TEST_CASE("claims: tiles in bf16 are loaded, multiplied and stored without conflicts") {
  check_fragments<16>(), check_fragments<32>(), check_fragments<64>(), check_fragments<128>();
  check_fragments<64, 2>(), check_fragments<128, 2>();
}

TEST_CASE_TEMPLATE("claims: tiles of LSH attention", T, float, double) {
  const auto tile = [] { run(0, lsh_tile<T>, memory<T>().data(), i64{64}); };
  check_coalesced(tile);
  if (sizeof(T) == 4) check_free_of_conflicts(tile);
}

}  // TEST_SUITE("accesses")
