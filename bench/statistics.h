// Statistics of the benchmark: quantiles of repeated times, exponents of curves, and the length
// from which one curve is below another. Pure functions.
#pragma once

#include <optional>
#include <vector>

namespace weft::bench {

struct Quantiles {
  double median = 0, p10 = 0, p90 = 0;
};

// Quantiles of at least one value, interpolated linearly between order statistics (Hyndman and
// Fan's type 7, the rule of numpy.quantile).
Quantiles quantiles(std::vector<double> values);

// A point of a curve: measured, or from the fact sheet, at this length.
struct Point {
  double length = 0, value = 0;
  double low = value, high = value;  // 10th and 90th percentile, if known
};

// value ≈ c · length^slope. `error` is the standard error of the slope.
struct Exponent {
  double slope = 0, error = 0;
  int points = 0;
};

// The last half of the points, which are in order of length, the middle one included, but at least
// three if there are so many: an exponent of two points has no error.
std::vector<Point> upper_half(const std::vector<Point>& points);

// Least squares on log value against log length. Nothing if there are fewer than three lengths or a
// value is not positive.
std::optional<Exponent> fit_exponent(const std::vector<Point>& points);

// Whether a measured exponent is further from the expected one than `tolerance` and two standard
// errors of both fits allow.
bool disagree(const Exponent& measured, const Exponent& expected, double tolerance);

// From which length the curve `low` is below the curve `high`, over the lengths that both have: it
// is below at a length if its 90th percentile is below the other's 10th.
struct Crossover {
  enum class Kind {
    unknown,  // no length in common
    never,    // not at the longest common length
    always,   // at every common length
    at,       // from `length` on, up to the longest common length
  };
  Kind kind = Kind::unknown;
  double length = 0;                 // where the two meet, interpolated linearly between logarithms
  double shortest = 0, longest = 0;  // common lengths
};

Crossover crossover(const std::vector<Point>& low, const std::vector<Point>& high);

}  // namespace weft::bench
