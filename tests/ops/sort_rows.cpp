// Rows of small keys sorted on the emulated device.
#include "ops/select/sort_rows.cuh"

#include <algorithm>
#include <numeric>

#include "runtime/allocator.h"
#include "tests/check.h"
#include "tests/ops/cases.h"

namespace weft {
namespace {

constexpr Device device{DeviceType::cuda, 0};

struct KeyAt {
  const i64* keys;
  i64 N;
  i64 operator()(i64 row, i64 place) const { return keys[row * N + place]; }
};

// Sorts `keys` [rows, N] and compares with what the rule says.
void check_rows(const std::vector<i64>& keys, i64 rows, i64 N, i64 bins, bool with_begins = true) {
  CAPTURE(rows);
  CAPTURE(N);
  CAPTURE(bins);
  const Tensor there = Tensor::from(keys, {rows, N}).to(device);
  const Tensor order = Tensor::empty({rows, N}, DType::i32, device);
  const Tensor begins = Tensor::empty({rows, with_begins ? bins + 1 : 0}, DType::i32, device);
  sort_rows("test", Cuda{},
            {rows, N, bins, order.data<std::int32_t>(),
             with_begins ? begins.data<std::int32_t>() : nullptr},
            KeyAt{there.data<i64>(), N});
  const auto places = order.to_vector<std::int32_t>(), starts = begins.to_vector<std::int32_t>();
  for (i64 row = 0; row < rows; ++row) {
    const auto key = [&](i64 place) {
      const i64 own = keys[static_cast<std::size_t>(row * N + place)];
      return own >= 0 && own < bins ? own : bins;
    };
    std::vector<std::int32_t> wanted(static_cast<std::size_t>(N));
    std::iota(wanted.begin(), wanted.end(), 0);
    std::stable_sort(wanted.begin(), wanted.end(), [&](i64 a, i64 b) { return key(a) < key(b); });
    CHECK(std::equal(wanted.begin(), wanted.end(), places.begin() + row * N));
    for (i64 k = 0; with_begins && k <= bins; ++k) {
      const auto below =
          std::count_if(wanted.begin(), wanted.end(), [&](i64 i) { return key(i) < k; });
      if (starts[static_cast<std::size_t>(row * (bins + 1) + k)] == below) continue;
      CAPTURE(k);
      CHECK(starts[static_cast<std::size_t>(row * (bins + 1) + k)] == below);
    }
  }
}

std::vector<i64> random_rows(i64 rows, i64 N, i64 least, i64 most) {
  std::vector<i64> keys = random_integers({rows, N}, most - least + 1, 7).to_vector<i64>();
  for (i64& key : keys) key += least;
  return keys;
}

TEST_SUITE("ops") {

TEST_CASE("sort_rows: each row by itself, equal keys as they were, other keys last") {
  if (!tested_is_emulated()) return;
  for (const auto& [rows, N] : std::vector<std::pair<i64, i64>>{
           {1, 1}, {1, 700}, {7, 1}, {5, 33}, {40, 64}, {3, 0}, {0, 9}, {0, 0}}) {
    for (const i64 bins : {1, 2, 37, 300}) {
      check_rows(random_rows(rows, N, 0, bins - 1), rows, N, bins);
      check_rows(random_rows(rows, N, -1, bins), rows, N, bins);
    }
  }
  check_rows(std::vector<i64>(60, 8), 3, 20, 9);
  check_rows(std::vector<i64>(60, -1), 3, 20, 9);
  const i64 far = i64{1} << 40;  // beyond 32 bits
  check_rows({far, 1, -far, 0, far + 1, 1}, 2, 3, 2);
}

TEST_CASE("sort_rows: more rows than keys of 32 bits tell apart") {
  if (!tested_is_emulated()) return;
  const i64 bins = i64{1} << 31;
  check_rows(random_rows(3, 50, bins - 6, bins), 3, 50, bins, false);
  check_rows(random_rows(9, 20, bins / 2 - 9, bins / 2), 9, 20, bins / 2 - 1, false);
}

TEST_CASE("sort_rows: scratch is what fact sheets say") {
  if (!tested_is_emulated()) return;
  const i64 rows = 30, N = 1000;
  const Tensor keys = random_integers({rows, N}, 9, 1).to(device);
  const Tensor order = Tensor::empty({rows, N}, DType::i32, device);
  const std::size_t live = allocator(device).counts().live;
  allocator(device).reset_peak();
  sort_rows("test", Cuda{}, {rows, N, 9, order.data<std::int32_t>()}, KeyAt{keys.data<i64>(), N});
  const double peak = double(allocator(device).counts().peak - live);
  CHECK(peak >= sort_rows_bytes(rows * N));
  CHECK(peak <= sort_rows_bytes(rows * N) * 9 / 8 + 4096);
}

}  // TEST_SUITE("ops")

}  // namespace
}  // namespace weft
