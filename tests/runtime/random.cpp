#include "runtime/random.h"

#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "tests/check.h"

namespace weft {
namespace {

using Words = std::array<std::uint32_t, 4>;

Words words_of(const Philox& philox) {
  return {philox.word[0], philox.word[1], philox.word[2], philox.word[3]};
}

TEST_SUITE("runtime") {

// The known answers that Random123 publishes for philox4x32, 10 rounds (its file kat_vectors).
TEST_CASE("philox gives its published vectors") {
  CHECK(words_of(philox({{0, 0, 0, 0}}, 0, 0)) ==
        Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t ones = 0xffffffff;
  CHECK(words_of(philox({{ones, ones, ones, ones}}, ones, ones)) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(words_of(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822,
                        0x299f31d0)) == Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("seed, step, stream and index each change the numbers") {
  const RandomKey key{0x123456789abcdefull, 7, 3};
  std::set<Words> seen;
  for (const RandomKey& other :
       {key, RandomKey{key.seed + 1, 7, 3}, RandomKey{key.seed + (1ull << 32), 7, 3},
        RandomKey{key.seed, 8, 3}, RandomKey{key.seed, 7, 4}}) {
    for (const std::uint64_t index : {0ull, 1ull, 1ull << 32}) {
      seen.insert(words_of(other.words(index)));
    }
  }
  CHECK(seen.size() == 15);
  RandomStreams streams(5, 9);
  CHECK(streams.next().stream == 0);
  const RandomKey second = streams.next();
  CHECK(second.first_example == 0);
  CHECK(RandomStreams(5, 9, nullptr, 12).next().further(DrawPurpose::planes).first_example == 12);
  CHECK(second.stream == 1);
  CHECK(second.seed == 5);
  CHECK(second.step == 9);
}

// Sample mean against expectation, in standard errors.
double deviation(double sum, double count, double mean, double variance) {
  return std::abs(sum / count - mean) / std::sqrt(variance / count);
}

TEST_CASE("uniform and normal numbers have their moments") {
  constexpr int count = 200000;
  const RandomKey key{11, 0, 0};
  double uniform1 = 0, uniform2 = 0, normal1 = 0, normal2 = 0, normal3 = 0, normal4 = 0;
  for (int i = 0; i < count; ++i) {
    const Philox words = key.words(static_cast<std::uint64_t>(i));
    const double u = uniform(words.word[0]), x = normal(words.word[1], words.word[2]);
    REQUIRE((u >= 0 && u < 1));
    REQUIRE(std::isfinite(x));
    uniform1 += u;
    uniform2 += (u - 0.5) * (u - 0.5);
    normal1 += x;
    normal2 += x * x;
    normal3 += x * x * x;
    normal4 += x * x * x * x;
  }
  const double most = tolerance::standard_errors;
  CHECK(deviation(uniform1, count, 0.5, 1.0 / 12) < most);
  CHECK(deviation(uniform2, count, 1.0 / 12, 1.0 / 180) < most);
  CHECK(deviation(normal1, count, 0, 1) < most);
  CHECK(deviation(normal2, count, 1, 2) < most);
  CHECK(deviation(normal3, count, 0, 15) < most);
  CHECK(deviation(normal4, count, 3, 96) < most);
}

TEST_CASE("cosine_of_turns is the cosine") {
  const double most = 1.5 * std::numeric_limits<double>::epsilon();
  const auto check = [&](std::uint32_t b) {
    const long double cosine = std::cos(6.28318530717958647692L * b / 4294967296.0L);
    REQUIRE(std::abs(static_cast<double>(cosine_of_turns(b) - cosine)) <= most);
  };
  for (std::uint64_t b = 0; b < std::uint64_t{1} << 32; b += 100003) {
    check(static_cast<std::uint32_t>(b));
  }
  // Around every eighth of a turn, where the series changes.
  for (std::uint32_t eighth = 0; eighth < 8; ++eighth) {
    for (std::uint32_t off = 0; off < 3; ++off) {
      check((eighth << 29) + off);
      check((eighth << 29) - off);
    }
  }
  CHECK(cosine_of_turns(std::uint32_t{0}) == 1);
  CHECK(cosine_of_turns(std::uint32_t{1} << 30) == 0);
  CHECK(cosine_of_turns(std::uint32_t{2} << 30) == -1);
}

TEST_CASE("the ends of the ranges") {
  CHECK(uniform(0) == 0);
  CHECK(uniform(0xffffffff) < 1);
  CHECK(below(0xffffffff, 27) == 26);
  CHECK(below(0, 27) == 0);
  CHECK(std::isfinite(normal(0, 0)));
  CHECK(std::isfinite(normal(0xffffffff, 0xffffffff)));
}

TEST_CASE("integers below a bound are equally frequent") {
  constexpr int count = 270000;
  std::array<int, 27> hits{};
  for (int i = 0; i < count; ++i) {
    ++hits[below(RandomKey{3, 1, 4}.words(static_cast<std::uint64_t>(i)).word[3], 27)];
  }
  constexpr double p = 1.0 / 27;
  for (const int hit : hits) {
    CHECK(deviation(hit, count, p, p * (1 - p)) < tolerance::standard_errors);
  }
}

}  // TEST_SUITE("runtime")
}  // namespace
}  // namespace weft
