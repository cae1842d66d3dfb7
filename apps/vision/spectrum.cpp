#include "apps/vision/spectrum.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace weft::vision {
namespace {

constexpr double orthogonal = 1e-15;
constexpr int most_sweeps = 60;

double dot(const double* x, const double* y, i64 count) {
  double sum = 0;
  for (i64 k = 0; k < count; ++k) sum += x[k] * y[k];
  return sum;
}

// Makes two rows orthogonal by a rotation; returns whether they were not.
bool turn(double* x, double* y, i64 count) {
  const double a = dot(x, x, count), b = dot(y, y, count), c = dot(x, y, count);
  if (std::abs(c) <= orthogonal * std::sqrt(a) * std::sqrt(b)) return false;
  const double zeta = (b - a) / (2 * c);
  const double t = std::copysign(1, zeta) / (std::abs(zeta) + std::hypot(1, zeta));
  const double cosine = 1 / std::hypot(1, t), sine = t * cosine;
  for (i64 k = 0; k < count; ++k) {
    const double before = x[k];
    x[k] = cosine * before - sine * y[k];
    y[k] = cosine * y[k] + sine * before;
  }
  return true;
}

}  // namespace

std::vector<double> singular_values(const Tensor& matrix) {
  require(matrix.rank() == 2, "singular values: wanted a matrix, got {}", matrix.shape());
  const bool wide = matrix.size(0) <= matrix.size(1);
  const Tensor turned = wide ? matrix : matrix.transpose(0, 1);
  const i64 n = turned.size(0), m = turned.size(1);
  std::vector<double> rows = turned.to(DType::f64).to_vector<double>();
  for (const double value : rows) {
    require(std::isfinite(value), "singular values: an element of the matrix is not finite");
  }
  bool changed = true;
  for (int sweep = 0; changed && sweep < most_sweeps; ++sweep) {
    changed = false;
    for (i64 i = 0; i < n; ++i) {
      for (i64 j = i + 1; j < n; ++j) {
        changed = turn(rows.data() + i * m, rows.data() + j * m, m) || changed;
      }
    }
  }
  std::vector<double> values;
  for (i64 i = 0; i < n; ++i) {
    values.push_back(std::sqrt(dot(rows.data() + i * m, rows.data() + i * m, m)));
  }
  std::sort(values.begin(), values.end(), std::greater<>());
  return values;
}

}  // namespace weft::vision
