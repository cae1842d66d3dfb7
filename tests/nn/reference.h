// The maps that models are made of, in scalar loops in double, implemented independently of them.
// Rows are the positions of one sequence.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "nn/module.h"

namespace weft::reference {

using Rows = std::vector<std::vector<double>>;

inline Rows zeros(std::size_t rows, std::size_t columns) {
  return Rows(rows, std::vector<double>(columns, 0.0));
}

inline Rows sum(Rows a, const Rows& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[i].size(); ++j) a[i][j] += b[i][j];
  }
  return a;
}

inline std::vector<double> mean(const Rows& x) {
  std::vector<double> mean(x[0].size(), 0.0);
  for (const auto& row : x) {
    for (std::size_t j = 0; j < row.size(); ++j) mean[j] += row[j] / static_cast<double>(x.size());
  }
  return mean;
}

inline void softmax(std::vector<double>& row) {
  double sum = 0;
  for (double& value : row) sum += value = std::exp(value);
  for (double& value : row) value /= sum;
}

// Rotary positions of heads of e features.
inline void turn(Rows& x, std::size_t e) {
  for (std::size_t p = 0; p < x.size(); ++p) {
    for (std::size_t c = 0; c < x[p].size(); c += 2) {
      const double power = static_cast<double>(c % e) / static_cast<double>(e);
      const double angle = static_cast<double>(p) * std::pow(10000.0, -power);
      const double a = x[p][c], b = x[p][c + 1];
      x[p][c] = a * std::cos(angle) - b * std::sin(angle);
      x[p][c + 1] = a * std::sin(angle) + b * std::cos(angle);
    }
  }
}

// The parameters of a model by their names, and what they do.
struct Weights {
  std::map<std::string, Rows> weights;  // vectors are one row; a convolution [W, n, m] is [W·n, m]

  template <class Model>
  explicit Weights(Model& model) {
    each_parameter(model, [&](const std::string& name, Parameter& parameter) {
      const Tensor& value = parameter.value();
      const std::vector<double> values = value.to(DType::f64).to_vector<double>();
      const auto columns = static_cast<std::size_t>(value.size(-1));
      Rows rows = zeros(values.size() / columns, columns);
      for (std::size_t i = 0; i < values.size(); ++i) rows[i / columns][i % columns] = values[i];
      weights[name] = rows;
    });
  }

  // x W[:, begin … end) + b
  Rows affine(const Rows& x, const std::string& matrix, const std::string& bias = "",
              std::size_t begin = 0, std::size_t end = 0) const {
    const Rows& w = weights.at(matrix);
    if (end == 0) end = w[0].size();
    Rows y = zeros(x.size(), end - begin);
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t j = begin; j < end; ++j) {
        double sum = bias.empty() ? 0 : weights.at(bias)[0][j];
        for (std::size_t k = 0; k < w.size(); ++k) sum += x[i][k] * w[k][j];
        y[i][j - begin] = sum;
      }
    }
    return y;
  }

  // A linear map, with a bias where it has one.
  Rows linear(const Rows& x, const std::string& name) const {
    const std::string bias = name + ".bias";
    return affine(x, name + ".weight", weights.contains(bias) ? bias : "");
  }

  Rows norm(Rows x, const std::string& name) const {
    const std::vector<double>&gain = weights.at(name + ".gain")[0],
          &bias = weights.at(name + ".bias")[0];
    for (auto& row : x) {
      const double d = static_cast<double>(row.size());
      double mean = 0, variance = 0;
      for (const double v : row) mean += v / d;
      for (const double v : row) variance += (v - mean) * (v - mean) / d;
      for (std::size_t j = 0; j < row.size(); ++j) {
        row[j] = gain[j] * (row[j] - mean) / std::sqrt(variance + 1e-5) + bias[j];
      }
    }
    return x;
  }

  // A layer of full attention.
  Rows full(const Rows& x, const std::string& name, i64 heads, bool causal,
            bool rotary = false) const {
    const std::size_t d = x[0].size(), e = d / static_cast<std::size_t>(heads);
    Rows q = affine(x, name + ".qkv.weight", "", 0, d);
    Rows k = affine(x, name + ".qkv.weight", "", d, 2 * d);
    const Rows v = affine(x, name + ".qkv.weight", "", 2 * d, 3 * d);
    if (rotary) turn(q, e), turn(k, e);
    Rows out = zeros(x.size(), d);
    for (std::size_t h = 0; h < d; h += e) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        std::vector<double> row(causal ? i + 1 : x.size(), 0.0);
        for (std::size_t j = 0; j < row.size(); ++j) {
          for (std::size_t c = h; c < h + e; ++c) row[j] += q[i][c] * k[j][c];
          row[j] /= std::sqrt(static_cast<double>(e));
        }
        softmax(row);
        for (std::size_t j = 0; j < row.size(); ++j) {
          for (std::size_t c = h; c < h + e; ++c) out[i][c] += row[j] * v[j][c];
        }
      }
    }
    return linear(out, name + ".output");
  }

  Rows feed_forward(const Rows& x, const std::string& name) const {
    Rows hidden = affine(x, name + ".weight1", name + ".bias1");
    for (auto& row : hidden) {
      for (double& z : row) {
        z *= 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
      }
    }
    return affine(hidden, name + ".weight2", name + ".bias2");
  }
};

}  // namespace weft::reference
