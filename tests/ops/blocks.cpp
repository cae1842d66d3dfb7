#include "ops/blocks/blocks.h"

#include <cmath>
#include <limits>

#include "tests/check.h"

namespace weft {
namespace {

TEST_SUITE("ops") {

TEST_CASE("blocks: mean, maximum and a row for all, index by index") {
  const i64 B = 3, N = 11, H = 2, E = 70;  // more features than are worked on at once
  const std::vector<i64> lengths{N, 6, 0};
  const Tensor x = random_normal({B, N, H, E}, DType::f64, 1);
  for (const i64 size : {1, 4, 11, 50}) {
    CAPTURE(size);
    const i64 n = (N + size - 1) / size;
    const Tensor rows = random_normal({B, n, H, E}, DType::f64, 2);
    const Tensor mean = Tensor::zeros({B, n, H, E}, DType::f64), most = mean.clone();
    const Tensor added = x.clone();
    for (i64 b = 0; b < B; ++b) {
      for (i64 i = 0; i < lengths[b]; ++i) {
        const i64 t = i / size, count = std::min(lengths[b] - t * size, size);
        for (i64 h = 0; h < H; ++h) {
          for (i64 e = 0; e < E; ++e) {
            const double value = x.view<double, 4>()(b, i, h, e);
            mean.view<double, 4>()(b, t, h, e) += value / double(count);
            double& largest = most.view<double, 4>()(b, t, h, e);
            largest = i % size == 0 ? value : std::max(largest, value);
            added.view<double, 4>()(b, i, h, e) += rows.view<double, 4>()(b, t, h, e);
          }
        }
      }
    }
    const Tensor counts = lengths_of(lengths).to(tested_device());
    for (const Tensor& lying : {x.to(tested_device()), scattered(x)}) {
      CHECK(relative_error(block_mean(lying, size, counts).value(), mean) <=
            tolerance::forward_f64);
      CHECK(same_bits(block_maximum(lying, size, counts).value(), most));
      CHECK(same_bits(add_to_blocks(lying, rows.to(tested_device()), size, counts).value(), added));
    }
  }
}

TEST_CASE("blocks: a NaN goes on, and what stands beyond the lengths does not") {
  const Tensor x =
      Tensor::from(std::vector<double>{1, not_a_number, 3, 2, 5, not_a_number}, {1, 6, 1, 1});
  const Tensor device = x.to(tested_device()), five = lengths_of({5}).to(tested_device());
  for (Variable (*const pool)(const Variable&, i64, const Tensor&) : {block_mean, block_maximum}) {
    const std::vector<double> y = pool(device, 2, five).value().to_vector<double>();
    CHECK(std::isnan(y[0]));
    CHECK(std::isfinite(y[1]));
    CHECK(y[2] == 5);
  }
}

TEST_CASE("blocks: of equal numbers the first has the gradient of the maximum") {
  const Tensor x = Tensor::from(std::vector<double>{1, 7, 7, 2, 3, 3}, {1, 6, 1, 1});
  const Run got =
      run([](std::span<const Variable> in) { return std::vector{block_maximum(in[0], 4)}; }, {x});
  const std::vector<double> dx = got.gradients[0].to_vector<double>();
  for (const std::size_t i : {0, 2, 3, 5}) CHECK(dx[i] == 0);
  CHECK(dx[1] != 0);
  CHECK(dx[4] != 0);
}

TEST_CASE("blocks: what they refuse") {
  const Tensor x = Tensor::zeros({2, 6, 1, 3}, DType::f64);
  CHECK_ERROR(block_mean(x, 0),
              "block_mean: wanted [B, N, H, E] in blocks of at least one position, "
              "got [2,6,1,3] in blocks of 0");
  CHECK_ERROR(block_maximum(x.reshape({12, 3}), 2), "block_maximum: wanted [B, N, H, E] in blocks");
  CHECK_ERROR(block_mean(x, 2, lengths_of({6})), "block_mean: lengths must be [2] of i64, got [1]");
  CHECK_ERROR(add_to_blocks(x, x, 4),
              "add_to_blocks: [2,6,1,3] of f64 in blocks of 4 needs rows [2,2,1,3], got [2,6,1,3]");
}

}  // TEST_SUITE("ops")

}  // namespace
}  // namespace weft
