// PathFinder: its curves, discs and pictures (apps/lra/pathfinder.h).
#include "apps/lra/pathfinder.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "apps/data/digest.h"
#include "doctest/doctest.h"

namespace weft::lra {
namespace {

using Pair = std::pair<i64, i64>;

PathFinderPicture picture(std::uint32_t number) { return drawn_pathfinder_picture(1, 0, number); }

// The half pixels of a dash, by rounding in f64.
std::vector<Pair> line_of(const Dash& dash) {
  const i64 n = std::max(std::abs(dash.reach.y), std::abs(dash.reach.x));
  std::vector<Pair> points;
  for (i64 i = 0; i <= n; ++i) {
    points.emplace_back(dash.from.y + std::lround(double(i * dash.reach.y) / double(n)),
                        dash.from.x + std::lround(double(i * dash.reach.x) / double(n)));
  }
  return points;
}

// The vector v of W with [v]_4 = −reach, (0, 0) where there is none.
Pair turn_of(const Dash& dash) {
  for (i64 y = -3; y <= 3; ++y) {
    for (i64 x = -3; x <= 3; ++x) {
      const i64 square = y * y + x * x;
      if (square < 8 || square > 10) continue;
      const double norm = std::sqrt(double(square));
      if (std::lround(4 * double(y) / norm) == -dash.reach.y &&
          std::lround(4 * double(x) / norm) == -dash.reach.x) {
        return {y, x};
      }
    }
  }
  return {0, 0};
}

double length(double y, double x) { return std::sqrt(y * y + x * x); }

Point pixel_of(const Dash& dash) { return {dash.from.y / 2, dash.from.x / 2}; }
bool same(Point a, Point b) { return a.y == b.y && a.x == b.x; }

// Whether each dash begins where the one before it ends, as the header has it.
bool connected(const std::vector<Dash>& curve) {
  Pair pivot, v;
  for (std::size_t k = 1; k < curve.size(); ++k) {
    const Pair next = turn_of(curve[k]);
    if (next == Pair{0, 0}) return false;
    const Point head = pixel_of(curve[k]);
    const Pair here{head.y - next.first, head.x - next.second};
    if (k == 1) {  // the pivot before the first dash is one pixel behind its tail, rounded
      const Point reach = curve[0].reach;
      const double norm = length(double(reach.y), double(reach.x));
      const double y = pixel_of(curve[0]).y + 3 * double(reach.y) / norm;
      const double x = pixel_of(curve[0]).x + 3 * double(reach.x) / norm;
      if (length(double(here.first) - y, double(here.second) - x) > 1.6) return false;
    } else {
      if (here.first != pivot.first - curve[k - 1].reach.y) return false;
      if (here.second != pivot.second - curve[k - 1].reach.x) return false;
      if (v.first * next.first + v.second * next.second <= 0) return false;
    }
    pivot = here, v = next;
  }
  return true;
}

TEST_SUITE("lra") {

TEST_CASE("pathfinder: the label says whether both discs are on one connected curve") {
  i64 distractors = 0;
  constexpr std::uint32_t count = 400;
  for (std::uint32_t number = 0; number < count; ++number) {
    CAPTURE(number);
    const PathFinderPicture drawn = picture(number);
    REQUIRE(drawn.curves.size() >= 2);
    REQUIRE(drawn.curves.size() <= 7);
    distractors += static_cast<i64>(drawn.curves.size()) - 2;
    for (std::size_t i = 0; i < drawn.curves.size(); ++i) {
      REQUIRE(drawn.curves[i].size() == (i < 2 ? 14 : 4));
      CHECK(connected(drawn.curves[i]));
    }
    // The curves that have a disc at their tail, and at their last head.
    std::set<std::size_t> tails, heads;
    for (std::size_t i = 0; i < drawn.curves.size(); ++i) {
      if (same(pixel_of(drawn.curves[i].front()), drawn.discs[0])) tails.insert(i);
      if (same(pixel_of(drawn.curves[i].back()), drawn.discs[1])) heads.insert(i);
    }
    REQUIRE(tails.size() == 1);
    REQUIRE(heads.size() == 1);
    CHECK(*tails.begin() < 2);
    CHECK(*heads.begin() < 2);
    CHECK((drawn.label == 1) == (tails == heads));
  }
  CHECK(2 * distractors > 7 * i64{count});  // 3.9 of five have a place, on average
}

TEST_CASE("pathfinder: curves begin in the middle, seven pixels apart, in all directions") {
  std::map<Pair, i64> quadrants;
  for (std::uint32_t number = 0; number < 400; ++number) {
    const PathFinderPicture drawn = picture(number);
    const Point one = pixel_of(drawn.curves[0][0]), two = pixel_of(drawn.curves[1][0]);
    CHECK(std::min(one.y, one.x) >= 14);
    CHECK(std::max(one.y, one.x) < 18);
    const double apart = length(double(two.y - one.y), double(two.x - one.x));
    CHECK(std::abs(apart - 7) <= std::sqrt(0.5));
    for (std::size_t i = 0; i < 2; ++i) {
      const Point reach = drawn.curves[i][0].reach;
      CHECK(std::abs(length(double(reach.y), double(reach.x)) - 4) <= std::sqrt(0.5));
      if (reach.y != 0 && reach.x != 0) ++quadrants[{reach.y > 0, reach.x > 0}];
    }
  }
  REQUIRE(quadrants.size() == 4);
  for (const auto& [quadrant, count] : quadrants) CHECK(count > 100);
}

TEST_CASE("pathfinder: dashes that do not follow one another do not touch, nor the border") {
  for (std::uint32_t number = 0; number < 100; ++number) {
    CAPTURE(number);
    const PathFinderPicture drawn = picture(number);
    std::map<Pair, std::pair<std::size_t, std::size_t>> owner;
    for (std::size_t i = 0; i < drawn.curves.size(); ++i) {
      for (std::size_t k = 0; k < drawn.curves[i].size(); ++k) {
        for (const auto& [y, x] : line_of(drawn.curves[i][k])) {
          CHECK(std::min(y, x) >= 2);
          CHECK(std::max(y, x) < 62);
          for (i64 dy = -1; dy <= 1; ++dy) {
            for (i64 dx = -1; dx <= 1; ++dx) {
              const auto found = owner.find({y + dy, x + dx});
              if (found == owner.end()) continue;
              const auto [curve, dash] = found->second;
              CHECK(curve == i);
              CHECK(dash + 1 >= k);
            }
          }
          owner[{y, x}] = {i, k};
        }
      }
    }
  }
}

TEST_CASE("pathfinder: pixels are the contrasts times the coverage, and the brightest is 255") {
  for (std::uint32_t number = 0; number < 100; ++number) {
    CAPTURE(number);
    const PathFinderPicture drawn = picture(number);
    std::vector<double> values(1024, 0);
    const auto mark = [&](const std::set<Pair>& halves, double contrast) {
      std::map<Pair, int> covered;
      for (const auto& [y, x] : halves) ++covered[{y / 2, x / 2}];
      for (const auto& [pixel, count] : covered) {
        double& at = values[static_cast<std::size_t>(32 * pixel.first + pixel.second)];
        at = std::max(at, contrast * count / 4);
      }
    };
    for (std::size_t i = 0; i < drawn.curves.size(); ++i) {
      for (const Dash& dash : drawn.curves[i]) {
        const std::vector<Pair> line = line_of(dash);
        mark({line.begin(), line.end()}, i < 2 ? 1.5 : 2);
      }
    }
    for (const Point disc : drawn.discs) {
      std::set<Pair> halves;
      for (i64 y = 0; y < 64; ++y) {
        for (i64 x = 0; x < 64; ++x) {
          if (length(double(y) / 2 - double(disc.y), double(x) / 2 - double(disc.x)) <= 1.5) {
            halves.insert({y, x});
          }
        }
      }
      mark(halves, 1);
    }
    const double largest = *std::max_element(values.begin(), values.end());
    for (std::size_t p = 0; p < 1024; ++p) {
      CHECK(std::abs(double(drawn.pixels[p]) - 255 * values[p] / largest) <= 0.5);
    }
    const std::set<std::uint8_t> levels(drawn.pixels.begin(), drawn.pixels.end());
    CHECK(levels.size() > 3);  // no picture is empty
    CHECK(levels.size() <= 9);
    CHECK(*levels.rbegin() == 255);
  }
}

TEST_CASE("pathfinder: labels are balanced, and parts are disjoint and drawn alone") {
  const SequenceTask task = drawn_pathfinder(1, {.train = 3000, .validation = 200, .test = 200});
  CHECK(task.train.count() == 3000);
  CHECK(task.classes.size() == 2);
  const i64 ones = std::count(task.train.labels.begin(), task.train.labels.end(), 1);
  CHECK(std::abs(double(ones) - 1500) < 4 * std::sqrt(3000.0) / 2);  // four deviations
  std::set<std::string> known;
  for (const Sequences* part : {&task.train, &task.validation, &task.test}) {
    for (i64 i = 0; i < part->count(); ++i) {
      const std::span<const std::uint8_t> pixels = part->at(i);
      REQUIRE(pixels.size() == 1024);
      CHECK(known.emplace(pixels.begin(), pixels.end()).second);
    }
  }
  const auto equal = [](const Sequences& part, std::uint32_t i, const PathFinderPicture& drawn) {
    return std::ranges::equal(part.at(i), drawn.pixels) && part.labels[i] == drawn.label;
  };
  CHECK(equal(task.train, 2999, drawn_pathfinder_picture(1, 0, 2999)));
  CHECK(equal(task.validation, 17, drawn_pathfinder_picture(1, 1, 17)));
  CHECK(equal(task.test, 17, drawn_pathfinder_picture(1, 2, 17)));
  CHECK_FALSE(equal(task.test, 17, drawn_pathfinder_picture(2, 2, 17)));
}

TEST_CASE("pathfinder: the same pictures on every machine") {
  const SequenceTask task = drawn_pathfinder(1, {.train = 200, .validation = 1, .test = 1});
  CHECK(data_digest(task.train.symbols, task.train.labels) == "22e83f1aec269db4d1ab2eb6ecfa1cc5");
}

}  // TEST_SUITE("lra")

}  // namespace
}  // namespace weft::lra
