// Results of f32 and bf16 beside sums in f64, element by element.
#pragma once

#include <cmath>
#include <string>

#include <fmt/core.h>

#include "tests/check.h"

namespace weft {

// |x|, in f64.
inline Tensor magnitude(const Tensor& x) {
  Tensor y = x.to(DType::f64).clone();
  for (i64 i = 0; i < y.count(); ++i) y.data<double>()[i] = std::abs(y.data<double>()[i]);
  return y;
}

// The first element that differs from `wanted` by more than unit · its bound and, if the result was
// stored in bf16, the rounding of that, or "".
inline std::string beyond_bounds(const Tensor& got, const Tensor& wanted, const Tensor& bounds,
                                 double unit, bool stored) {
  const auto doubles = [](const Tensor& x) { return x.to(DType::f64).to_vector<double>(); };
  const std::vector<double> x = doubles(got), y = doubles(wanted), bound = doubles(bounds);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double sums = unit * bound[i];
    const double rounding = stored ? tolerance::half_unit_bf16 * (std::abs(y[i]) + sums) : 0;
    if (std::abs(x[i] - y[i]) <= sums + rounding) continue;
    return fmt::format("element {} is {}, wanted {} ± {}", i, x[i], y[i], sums + rounding);
  }
  return {};
}

// The same of sums of `terms` products in f32, with the bounds terms · 2⁻²⁴ · Σ |products|, where
// `sizes` has these sums.
inline std::string beyond_roundings(const Tensor& got, const Tensor& wanted, const Tensor& sizes,
                                    i64 terms, bool stored) {
  return beyond_bounds(got, wanted, sizes, std::ldexp(double(terms), -24), stored);
}

}  // namespace weft
