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

// The first element that differs from a sum of `terms` products by more than the roundings, or "":
// of a sum in f32, terms · 2⁻²⁴ · Σ |products|, where `sizes` has these sums, and, if the result
// was stored in bf16, of that.
inline std::string beyond_roundings(const Tensor& got, const Tensor& wanted, const Tensor& sizes,
                                    i64 terms, bool stored) {
  const auto doubles = [](const Tensor& x) { return x.to(DType::f64).to_vector<double>(); };
  const std::vector<double> x = doubles(got), y = doubles(wanted), size = doubles(sizes);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double sums = double(terms) * std::ldexp(size[i], -24);
    const double rounding = stored ? tolerance::half_unit_bf16 * (std::abs(y[i]) + sums) : 0;
    if (std::abs(x[i] - y[i]) <= sums + rounding) continue;
    return fmt::format("element {} is {}, wanted {} ± {}", i, x[i], y[i], sums + rounding);
  }
  return {};
}

}  // namespace weft
