// Golden files: results of an earlier commit, which later ones must reproduce.
//
// A tensor is kept as its Frobenius norm and its inner products with a few random tensors. An error
// of relative size e in it changes an inner product by e times the norm, times a standard normal
// number.
//
//     build/tests/test_golden --no-skip --test-case="golden: write*"
// writes the files anew, for whoever adds a mechanism or a preset; lines that change are a change
// of results.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/check.h"
#include "tests/files.h"
#include "tests/json_lines.h"

namespace weft::golden {

// The file's lines begin with the commit of their figures.
inline std::string path(const std::string& name) {
  return std::string(WEFT_SOURCE_ROOT "/tests/golden/") + name;
}

inline void write(const std::string& name, const std::vector<nlohmann::ordered_json>& all) {
  std::ofstream file(path(name));
  for (const nlohmann::ordered_json& line : all) file << line.dump() << '\n';
  REQUIRE(file.good());
}

inline std::vector<nlohmann::json> read(const std::string& name) {
  return lines(read_file(path(name)));
}

constexpr int projections = 3;

inline std::vector<double> digest(const Tensor& tensor) {
  const std::vector<double> x = tensor.to(Device{}).to(DType::f64).to_vector<double>();
  std::vector<double> figures(1 + projections);
  for (const double value : x) figures[0] += value * value;
  figures[0] = std::sqrt(figures[0]);
  for (int k = 0; k < projections; ++k) {
    const Tensor w = random_normal(tensor.shape(), DType::f64, 100 + static_cast<std::uint64_t>(k));
    const std::vector<double> weights = w.to_vector<double>();
    for (std::size_t i = 0; i < x.size(); ++i) figures[1 + std::size_t(k)] += weights[i] * x[i];
  }
  return figures;
}

// The largest difference of two digests' figures, over the size of an inner product with a random
// tensor whose norm is the one wanted, or `floor`: below it a tensor is the rounding of zeros.
inline double digest_error(const Tensor& got, const std::vector<double>& wanted, double floor) {
  const std::vector<double> figures = digest(got);
  double worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double difference = std::abs(figures[i] - wanted[i]);
    if (!(difference <= worst)) worst = difference;  // NaN is the worst
  }
  const double size = std::max(wanted[0], floor);
  return worst == 0 ? 0 : worst / size;
}

// So many standard deviations of an inner product are allowed.
constexpr double deviations = 5;

}  // namespace weft::golden
