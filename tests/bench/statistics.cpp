// Quantiles, exponents and crossovers, on numbers whose results are known.
#include "bench/statistics.h"

#include <cmath>

#include "bench/measure.h"
#include "tests/files.h"

#include "doctest/doctest.h"

using namespace weft::bench;

namespace {

std::vector<Point> power_law(double c, double slope, const std::vector<double>& lengths) {
  std::vector<Point> points;
  for (const double n : lengths) points.push_back({n, c * std::pow(n, slope)});
  return points;
}

TEST_SUITE("bench") {

TEST_CASE("quantiles: order statistics, and straight lines between them") {
  const Quantiles of_eleven = quantiles({10, 0, 3, 7, 1, 9, 2, 8, 5, 4, 6});
  CHECK(of_eleven.p10 == 1);
  CHECK(of_eleven.median == 5);
  CHECK(of_eleven.p90 == 9);
  const Quantiles of_two = quantiles({3, 1});
  CHECK(of_two.p10 == doctest::Approx(1.2));
  CHECK(of_two.median == 2);
  CHECK(of_two.p90 == doctest::Approx(2.8));
  const Quantiles of_one = quantiles({4});
  CHECK(of_one.p10 == 4);
  CHECK(of_one.p90 == 4);
  CHECK(weft::contains(weft::error_of([] { quantiles({}); }), "at least one value"));
}

TEST_CASE("measure: the times between the clock's readings, the warm-up left out") {
  double now = 100;
  int calls = 0;
  const double takes[] = {50, 50, 3, 1, 2};  // seconds; the first two warm up
  const Quantiles times = measure([&] { now += takes[calls++]; }, 2, 3, 6, [&] { return now; });
  CHECK(calls == 5);  // three runs, and six seconds
  CHECK(times.median == 2);
  CHECK(times.p10 == doctest::Approx(1.2));
  CHECK(times.p90 == doctest::Approx(2.8));
}

TEST_CASE("exponent: exact on a power law, whatever the lengths") {
  for (const double slope : {0.0, 1.0, 1.5, 2.0, -0.5}) {
    const auto fit = fit_exponent(power_law(3e-7, slope, {256, 300, 1024, 4096, 1e6}));
    REQUIRE(fit);
    CHECK(fit->slope == doctest::Approx(slope));
    CHECK(std::abs(fit->error) < 1e-12);
    CHECK(fit->points == 5);
  }
}

// On x = 0, 1, 2, 3 with y = 0, 1, 3, 3 in logarithms to the base of 2: slope 1.1, intercept 0.1,
// squared residuals 0.7, and the error √(0.7 / 2 / 5) by any textbook.
TEST_CASE("exponent: the error of the slope") {
  const auto fit = fit_exponent({{1, 1}, {2, 2}, {4, 8}, {8, 8}});
  REQUIRE(fit);
  CHECK(fit->slope == doctest::Approx(1.1));
  CHECK(fit->error == doctest::Approx(std::sqrt(0.7 / 2 / 5)));
}

TEST_CASE("exponent: none of two points, of one length, or of what is not positive") {
  CHECK(!fit_exponent({{1, 1}, {2, 2}}));
  CHECK(!fit_exponent({{2, 1}, {2, 2}, {2, 3}}));
  CHECK(!fit_exponent({{1, 1}, {2, 0}, {4, 4}}));
  CHECK(!fit_exponent({{1, 1}, {2, NAN}, {4, 4}}));
}

TEST_CASE("exponent: over the upper half of the lengths, three at least") {
  const auto lengths = [](const std::vector<Point>& points) {
    std::vector<double> result;
    for (const Point& p : points) result.push_back(p.length);
    return result;
  };
  const auto points = power_law(1, 1, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(lengths(upper_half(points)) == std::vector<double>{5, 6, 7, 8, 9});
  CHECK(lengths(upper_half(power_law(1, 1, {1, 2, 3, 4}))) == std::vector<double>{2, 3, 4});
  CHECK(lengths(upper_half(power_law(1, 1, {1, 2}))) == std::vector<double>{1, 2});
}

TEST_CASE("exponents disagree beyond the tolerance and two standard errors of both") {
  const Exponent exact{.slope = 1};
  CHECK(!disagree({.slope = 1.14}, exact, 0.15));
  CHECK(disagree({.slope = 1.16}, exact, 0.15));
  CHECK(disagree({.slope = 0.84}, exact, 0.15));
  CHECK(!disagree({.slope = 1.34, .error = 0.1}, exact, 0.15));
  CHECK(disagree({.slope = 1.36, .error = 0.1}, exact, 0.15));
  CHECK(!disagree({.slope = 1.24, .error = 0.03}, {.slope = 1, .error = 0.04}, 0.15));
  CHECK(disagree({.slope = 1.26, .error = 0.03}, {.slope = 1, .error = 0.04}, 0.15));
}

TEST_CASE("crossover: where two power laws meet") {
  const std::vector<double> lengths{256, 512, 1024, 2048, 4096, 8192};
  const auto full = power_law(1e-6, 2, lengths);
  const Crossover at = crossover(power_law(1e-3, 1, lengths), full);  // at 1000
  CHECK(at.kind == Crossover::Kind::at);
  CHECK(at.length == doctest::Approx(1000));
  CHECK(at.shortest == 256);
  CHECK(at.longest == 8192);
  CHECK(crossover(power_law(1e-5, 1, lengths), full).kind == Crossover::Kind::always);
  CHECK(crossover(power_law(1, 1, lengths), full).kind == Crossover::Kind::never);
  CHECK(crossover(full, full).kind == Crossover::Kind::never);  // as fast is not faster
}

TEST_CASE("crossover: only over lengths that both have, and for good") {
  const auto full = power_law(1, 1, {256, 512, 1024, 2048});
  // Faster at 256 and from 1024 on: the earlier range does not count.
  const Crossover twice = crossover({{256, 200}, {512, 700}, {1024, 900}, {2048, 1000}}, full);
  CHECK(twice.kind == Crossover::Kind::at);
  CHECK(twice.length > 512);
  CHECK(twice.length < 1024);
  // Beyond the lengths of full attention nothing is claimed.
  const Crossover beyond = crossover({{1024, 2000}, {2048, 3000}, {4096, 1}}, full);
  CHECK(beyond.kind == Crossover::Kind::never);
  CHECK(beyond.longest == 2048);
  CHECK(crossover({{300, 1}}, full).kind == Crossover::Kind::unknown);
  CHECK(crossover({}, full).kind == Crossover::Kind::unknown);
}

TEST_CASE("crossover: what the spread of both allows is not faster") {
  const std::vector<Point> full{{256, 10, 9, 11}, {512, 20, 18, 22}, {1024, 40, 36, 44}};
  // Its 90th percentile is above full's 10th at 512, though its median is below.
  const Crossover c = crossover({{256, 12, 11, 13}, {512, 17, 16, 19}, {1024, 20, 19, 21}}, full);
  CHECK(c.kind == Crossover::Kind::at);
  CHECK(c.length == doctest::Approx(1024));
  const auto same = crossover({{256, 9.9, 9, 11}, {512, 19, 18, 22}, {1024, 39, 36, 44}}, full);
  CHECK(same.kind == Crossover::Kind::never);
}

}  // TEST_SUITE("bench")

}  // namespace
