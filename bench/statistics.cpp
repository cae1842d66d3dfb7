#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

#include "runtime/error.h"

namespace weft::bench {

Quantiles quantiles(std::vector<double> values) {
  require(!values.empty(), "quantiles: wanted at least one value");
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return std::lerp(values[below], values[above], place - static_cast<double>(below));
  };
  return {at(0.5), at(0.1), at(0.9)};
}

std::vector<Point> upper_half(const std::vector<Point>& points) {
  const std::size_t count =
      std::min(points.size(), std::max<std::size_t>(3, (points.size() + 1) / 2));
  return {points.end() - static_cast<std::ptrdiff_t>(count), points.end()};
}

std::optional<Exponent> fit_exponent(const std::vector<Point>& points) {
  const auto n = static_cast<double>(points.size());
  if (points.size() < 3) return {};
  double mean_x = 0, mean_y = 0;
  for (const Point& p : points) {
    if (!(p.value > 0) || !(p.length > 0)) return {};
    mean_x += std::log(p.length) / n, mean_y += std::log(p.value) / n;
  }
  double xx = 0, xy = 0;
  for (const Point& p : points) {
    const double x = std::log(p.length) - mean_x;
    xx += x * x, xy += x * (std::log(p.value) - mean_y);
  }
  if (!(xx > 0)) return {};
  const double slope = xy / xx;
  double residuals = 0;
  for (const Point& p : points) {
    const double r = std::log(p.value) - mean_y - slope * (std::log(p.length) - mean_x);
    residuals += r * r;
  }
  return Exponent{slope, std::sqrt(residuals / (n - 2) / xx), static_cast<int>(points.size())};
}

bool disagree(const Exponent& measured, const Exponent& expected, double tolerance) {
  const double error = std::hypot(measured.error, expected.error);
  return std::abs(measured.slope - expected.slope) > tolerance + 2 * error;
}

Crossover crossover(const std::vector<Point>& low, const std::vector<Point>& high) {
  struct Common {
    double length, gap;  // log low − log high: below 0 if `low` is the lower one
    bool below;          // beyond the spread of both
  };
  std::vector<Common> common;
  for (const Point& a : low) {
    const auto b = std::find_if(high.begin(), high.end(),
                                [&](const Point& p) { return p.length == a.length; });
    if (b == high.end()) continue;
    common.push_back({a.length, std::log(a.value / b->value), a.high < b->low});
  }
  if (common.empty()) return {};
  Crossover result{.shortest = common.front().length, .longest = common.back().length};
  const auto last_above =
      std::find_if(common.rbegin(), common.rend(), [](const Common& c) { return !c.below; });
  if (last_above == common.rbegin()) {
    result.kind = Crossover::Kind::never;
  } else if (last_above == common.rend()) {
    result.kind = Crossover::Kind::always;
  } else {
    const Common &above = *last_above, &below = *(last_above - 1);
    const double share = above.gap > 0 ? above.gap / (above.gap - below.gap) : 1;
    result.kind = Crossover::Kind::at;
    result.length = std::exp(std::lerp(std::log(above.length), std::log(below.length), share));
  }
  return result;
}

}  // namespace weft::bench
