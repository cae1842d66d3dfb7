// Properties of BigBird attention alone (mechanism page: ops/attention/bigbird/bigbird.h).
#include <set>

#include "ops/attention/definitions.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"

namespace weft {
namespace {

std::string bigbird(i64 block, i64 random) {
  return fmt::format("bigbird:block={},random={}", block, random);
}

// Numbers of blocks, some of them repeated, some seen anyway and some out of range.
Tensor any_blocks(const Shape& shape, i64 n) {
  std::vector<i64> blocks(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Philox words = RandomKey{3, 1, 4}.words(i / 4);
    blocks[i] = i64{below(words.word[i % 4], static_cast<std::uint32_t>(n + 4))} - 2;
  }
  return Tensor::from(blocks, shape);
}

// Dense attention with the mask of the paper, implemented independently.
Run dense(i64 size, const QueryKeyValue& in, const AttentionCall& call, const Tensor& random) {
  const i64 B = in.q.size(0), N = in.q.size(1), H = in.q.size(2), E = in.q.size(3);
  const std::vector<i64> lengths =
      call.lengths.defined() ? call.lengths.to_vector<i64>() : std::vector<i64>(std::size_t(B), N);
  const auto sees = [&](i64 b, i64 h, i64 i, i64 j) {
    const i64 n = (lengths[std::size_t(b)] + size - 1) / size, t = i / size, u = j / size;
    if (t >= n || u >= n) return false;
    if (t == 0 || t == n - 1 || u == 0 || u == n - 1 || std::abs(t - u) <= 1) return true;
    const Tensor own = random.rank() == 4
                           ? random.slice(0, b, b + 1).reshape({H, random.size(2), random.size(3)})
                           : random;
    for (i64 k = 0; k < own.size(2); ++k) {
      if (own.view<i64, 3>()(h, t - 1, k) == u) return true;
    }
    return false;
  };
  const auto f = [&](std::span<const Variable> v) {
    const Tensor seen = self_visibility(call, B, H, N, sees);
    return std::vector{attention_over(seen, 1 / std::sqrt(double(E)), call, v[0], v[1], v[2])};
  };
  return run(f, in.list(), 17, Device{});
}

// The draws of one head and block.
std::vector<i64> drawn_of(const Tensor& blocks, i64 h, i64 t) {
  return blocks.slice(0, h, h + 1).slice(1, t - 1, t).to_vector<i64>();
}

TEST_SUITE("attention") {

TEST_CASE("bigbird: it is dense attention under the mask of the paper") {
  const bool few = few_wanted();
  for (const auto& [N, size, r] : {std::array<i64, 3>{70, 3, 2},
                                   {7, 1, 1},
                                   {130, 40, 1},
                                   {64, 64, 3},
                                   {few ? 200 : 450, 64, 2},
                                   {few ? 150 : 700, 128, 1}}) {
    if (few && size == 40) continue;
    const i64 B = few ? 2 : 3, H = 2, n = (N + size - 1) / size, inside = std::max<i64>(n - 2, 0);
    const QueryKeyValue in(B, N, N, H, 3, 4);
    const std::vector<i64> lengths{N, N - N / 3, 0};
    for (const bool cut : {false, true}) {
      for (const bool by_item : {false, true}) {
        CAPTURE(N);
        CAPTURE(size);
        AttentionCall call;
        if (cut) call.lengths = lengths_of({lengths.end() - B, lengths.end()});
        const Tensor random = any_blocks(by_item ? Shape{B, H, inside, r} : Shape{H, inside, r}, n);
        call.given["random_blocks"] = random;
        check_close(attended_run(bigbird(size, r), in.list(), call), dense(size, in, call, random));
      }
    }
  }
}

TEST_CASE(
    "bigbird: random blocks are others than those seen anyway, each once, as many as there are") {
  const i64 H = 3, r = 3;
  for (const i64 n : {3, 4, 5, 7, 8, 9, 40}) {
    const QueryKeyValue in(1, 2 * n - 1, 2 * n - 1, H, 1, 1);
    const Tensor blocks = chosen(bigbird(2, r), in.list()).at("random_blocks");
    REQUIRE(blocks.shape() == Shape{H, n - 2, r});
    for (i64 h = 0; h < H; ++h) {
      for (i64 t = 1; t < n - 1; ++t) {
        std::set<i64> others;
        for (i64 u = 1; u < n - 1; ++u) {
          if (std::abs(u - t) > 1) others.insert(u);
        }
        const i64 wanted = std::min<i64>(r, std::ssize(others));
        std::set<i64> drawn;
        for (const i64 u : drawn_of(blocks, h, t)) {
          if (u >= 0) CHECK(drawn.insert(u).second);
        }
        CHECK(std::ssize(drawn) == wanted);
        CHECK(std::includes(others.begin(), others.end(), drawn.begin(), drawn.end()));
      }
    }
  }
}

TEST_CASE("bigbird: every block is as likely") {
  const i64 H = 40, n = 42, r = 3;
  const QueryKeyValue in(1, n, n, H, 1, 1);
  const Tensor blocks = chosen(bigbird(1, r), in.list()).at("random_blocks");
  std::vector<i64> times(std::size_t(n), 0);
  for (const i64 u : blocks.to_vector<i64>()) ++times[std::size_t(u)];
  // 40 · 40 · 3 draws over 40 blocks: 120 each, with a deviation of 11.
  for (i64 u = 1; u < n - 1; ++u) {
    CAPTURE(u);
    CHECK(times[std::size_t(u)] > 70);
    CHECK(times[std::size_t(u)] < 170);
  }
}

TEST_CASE("bigbird: what is drawn is a function of seed, layer, head and length") {
  const i64 N = 60;
  const QueryKeyValue in(2, N, N, 2, 2, 2);
  const auto drawn = [&](AttentionCall call, i64 length) {
    const QueryKeyValue cut(1, length, length, 2, 2, 2);
    return chosen(bigbird(2, 3), cut.list(), call).at("random_blocks");
  };
  AttentionCall call;
  const Tensor blocks = drawn(call, N);
  call.random = {9, 9, 9};
  call.depth = 3;
  CHECK(same_bits(drawn(call, N), blocks));
  AttentionCall seed = call, layer = call;
  seed.seed = 1;
  layer.layer = 1;
  CHECK_FALSE(same_bits(drawn(seed, N), blocks));
  CHECK_FALSE(same_bits(drawn(layer, N), blocks));
  CHECK_FALSE(same_bits(blocks.slice(0, 0, 1), blocks.slice(0, 1, 2)));
  CHECK_FALSE(same_bits(drawn(call, N - 2), blocks.slice(1, 0, 27)));
  // Each item of a batch has the blocks of its own length.
  call.lengths = lengths_of({N, 41});
  const Tensor both = chosen(bigbird(2, 3), in.list(), call).at("random_blocks");
  REQUIRE(both.shape() == Shape{2, 2, 28, 3});
  call.lengths = {};
  CHECK(same_bits(both.slice(0, 0, 1).reshape({2, 28, 3}), blocks));
  CHECK(same_bits(both.slice(0, 1, 2).slice(2, 0, 19).reshape({2, 19, 3}), drawn(call, 41)));
  for (const i64 none : both.slice(0, 1, 2).slice(2, 19, 28).to_vector<i64>()) CHECK(none == -1);
}

TEST_CASE("bigbird: up to three blocks, and with all blocks drawn, it is full attention") {
  const QueryKeyValue in(2, 70, 70, 2, 4, 5);
  AttentionCall call;
  for (const bool cut : {false, true}) {
    if (cut) call.lengths = lengths_of({70, 48});
    AttentionCall full = call;
    full.query_lengths = call.lengths;
    const Tensor wanted = attended("full", in.list(), full);
    for (const std::string& spec :
         {bigbird(24, 0), bigbird(70, 0), bigbird(100, 2), bigbird(5, 12)}) {
      CAPTURE(spec);
      check_close(attended(spec, in.list(), call), wanted);
    }
  }
}

// The lists of tiles are written into memory that was allocated before: the kernel refuses to
// exceed it.
TEST_CASE("bigbird: no pattern lists more tiles than there is room for") {
  if (tested_device() != Device{}) return;
  for (const i64 N : {1, 64, 65, 200, 1000}) {
    const QueryKeyValue in(2, N, N, 1, 1, 1);
    for (const i64 size : {1, 2, 31, 33, 63, 64, 65, 100, 128, 500}) {
      for (const i64 r : {0, 1, 5}) {
        const AttentionCall call = with_lengths({N, (N + 2) / 3});
        CHECK(attended(bigbird(size, r), in.list(), call).count() == 2 * N);
      }
    }
  }
}

TEST_CASE("bigbird: what it refuses") {
  const QueryKeyValue in(2, 9, 9, 1, 2, 2);
  CHECK_ERROR(attended("bigbird:block=0", in.list()), "block");
  CHECK_ERROR(attended("bigbird:random=-1", in.list()), "random");
  CHECK_ERROR(attended("bigbird", in.list(), causal()), "bigbird: has no causal form");
  AttentionCall call;
  call.given["random_blocks"] = any_blocks({1, 2, 3}, 5);
  CHECK_ERROR(attended("bigbird:block=2", in.list(), call),
              "bigbird: the given random_blocks must be [1,3,3] of i64, got [1,2,3]");
  call.given["random_blocks"] = any_blocks({1, 1, 3, 3}, 5);
  CHECK_ERROR(attended("bigbird:block=2", in.list(), call),
              "bigbird: the given random_blocks must be [2,1,3,3] of i64, got [1,1,3,3]");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
