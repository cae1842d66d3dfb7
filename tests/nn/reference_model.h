// The universal transformer of one sequence in scalar loops in double, implemented independently:
// the definition that the tests compare the model with. Rows are positions.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "nn/universal_transformer.h"

namespace weft::reference {

using Rows = std::vector<std::vector<double>>;

inline Rows zeros(std::size_t rows, std::size_t columns) {
  return Rows(rows, std::vector<double>(columns, 0.0));
}

struct Model {
  UniversalTransformerConfig config;
  std::map<std::string, Rows> weights;  // vectors are one row; a convolution [W, n, m] is [W·n, m]

  explicit Model(UniversalTransformer& model) : config(model.config()) {
    each_parameter(model, [&](const std::string& name, Parameter& parameter) {
      const Tensor& value = parameter.value();
      const std::vector<double> values = value.to(DType::f64).to_vector<double>();
      const auto columns = static_cast<std::size_t>(value.size(-1));
      Rows rows = zeros(values.size() / columns, columns);
      for (std::size_t i = 0; i < values.size(); ++i) rows[i / columns][i % columns] = values[i];
      weights[name] = rows;
    });
  }

  bool has(const std::string& name) const { return weights.count(name) == 1; }

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

  static Rows sum(Rows a, const Rows& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < a[i].size(); ++j) a[i][j] += b[i][j];
    }
    return a;
  }

  Rows norm(const Rows& a, const Rows& b, const std::string& name) const {
    Rows y = a;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::size_t d = a[i].size();
      double mean = 0, variance = 0;
      for (std::size_t j = 0; j < d; ++j) y[i][j] += b[i][j];
      for (const double v : y[i]) mean += v / static_cast<double>(d);
      for (const double v : y[i]) variance += (v - mean) * (v - mean) / static_cast<double>(d);
      for (std::size_t j = 0; j < d; ++j) {
        y[i][j] = (y[i][j] - mean) / std::sqrt(variance + 1e-5) * weights.at(name + ".gain")[0][j] +
                  weights.at(name + ".bias")[0][j];
      }
    }
    return y;
  }

  static void softmax(std::vector<double>& row) {
    double sum = 0;
    for (double& value : row) sum += value = std::exp(value);
    for (double& value : row) value /= sum;
  }

  // Rotary positions of heads of e features.
  static void turn(Rows& x, std::size_t e) {
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

  Rows full(const Rows& x, const std::string& name) const {
    const std::size_t d = x[0].size(), e = d / static_cast<std::size_t>(config.heads);
    Rows q = affine(x, name + ".qkv.weight", "", 0, d);
    Rows k = affine(x, name + ".qkv.weight", "", d, 2 * d);
    const Rows v = affine(x, name + ".qkv.weight", "", 2 * d, 3 * d);
    if (config.encoding == "rotary") turn(q, e), turn(k, e);
    Rows out = zeros(x.size(), d);
    for (std::size_t h = 0; h < d; h += e) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        std::vector<double> row(i + 1, 0.0);
        for (std::size_t j = 0; j <= i; ++j) {
          for (std::size_t c = h; c < h + e; ++c) row[j] += q[i][c] * k[j][c];
          row[j] /= std::sqrt(static_cast<double>(e));
        }
        softmax(row);
        for (std::size_t j = 0; j <= i; ++j) {
          for (std::size_t c = h; c < h + e; ++c) out[i][c] += row[j] * v[j][c];
        }
      }
    }
    return affine(out, name + ".output.weight");
  }

  Rows agglomerative(const Rows& x, const std::string& name) const {
    const std::size_t d = x[0].size(), classes = static_cast<std::size_t>(config.heads);
    const std::size_t e = d / classes;
    Rows query = affine(x, name + ".zq.weight", name + ".zq.bias");
    Rows key = affine(x, name + ".zk.weight", name + ".zk.bias");
    const Rows values = affine(x, name + ".y.weight");
    std::vector<double> count(classes, 0.0), total(d, 0.0);
    Rows out = zeros(x.size(), d);
    for (std::size_t i = 0; i < x.size(); ++i) {
      softmax(query[i]);
      softmax(key[i]);
      for (std::size_t c = 0; c < d; ++c) total[c] += key[i][c / e] * values[i][c];
      for (std::size_t k = 0; k < classes; ++k) count[k] += key[i][k];
      for (std::size_t c = 0; c < d; ++c) {
        out[i][c] = query[i][c / e] * total[c] / std::max(count[c / e], 1e-3);
      }
    }
    return affine(out, name + ".output.weight");
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

  Rows convolution(const Rows& x) const {
    const auto window = static_cast<std::size_t>(config.conv_width);
    Rows windows = zeros(x.size(), window * x[0].size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t k = 0; k < window; ++k) {
        if (i + k + 1 < window) continue;
        const std::vector<double>& seen = x[i + k + 1 - window];
        std::copy(seen.begin(), seen.end(), windows[i].data() + k * seen.size());
      }
    }
    Rows y = affine(windows, "convolution.weight", "convolution.bias");
    for (auto& row : y) {
      for (double& value : row) value = std::max(value, 0.0);
    }
    return y;
  }

  struct Result {
    Rows logits;
    double ponder = 0, penalty = 0;
  };

  Result operator()(const std::vector<i64>& ids) const {
    const std::size_t n = ids.size(), d = static_cast<std::size_t>(config.width);
    const Rows& table = weights.at("embedding.table");
    Rows h, accumulated = zeros(n, d);
    for (const i64 id : ids) h.push_back(table[static_cast<std::size_t>(id)]);
    std::vector<double> budget(n, 0.99), rest(n, 1.0), steps(n, 0.0);
    Result result;
    for (std::size_t t = 0; t < static_cast<std::size_t>(config.depth); ++t) {
      if (config.encoding == "conv") {
        h = convolution(h);
      } else if (config.encoding == "position") {
        for (std::size_t i = 0; i < n; ++i) {
          for (std::size_t c = 0; c < d; ++c) {
            h[i][c] += weights.at("position")[i][c] + weights.at("depth")[t][c];
          }
        }
      }
      const std::string block = config.shared ? "block" : "blocks." + std::to_string(t);
      const auto mixed = [&](const Rows& x) {
        return config.attention == "full" ? full(x, block + ".attention")
                                          : agglomerative(x, block + ".attention");
      };
      if (config.wiring == "prenorm") {
        const Rows nothing = zeros(n, d);
        h = sum(h, mixed(norm(h, nothing, block + ".norm1")));
        h = sum(h, feed_forward(norm(h, nothing, block + ".norm2"), block + ".feed_forward"));
      } else {
        const Rows y = norm(h, mixed(h), block + ".norm1");
        h = norm(y, feed_forward(y, block + ".feed_forward"), block + ".norm2");
      }
      if (!config.act) {
        accumulated = h;
        continue;
      }
      const Rows halting = affine(h, "halting.weight", "halting.bias");
      result.ponder = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double p = 1 / (1 + std::exp(-halting[i][0]));
        const bool active = budget[i] > 0, last = budget[i] - p <= 0;
        const double weight = !active ? 0 : last ? rest[i] : p;
        steps[i] += active;
        result.ponder += 0.01 * (rest[i] + steps[i]) / static_cast<double>(n);
        if (!last) rest[i] -= p;
        budget[i] -= p;
        for (std::size_t c = 0; c < d; ++c) accumulated[i][c] += weight * h[i][c];
      }
    }
    if (config.wiring == "prenorm") accumulated = norm(accumulated, zeros(n, d), "norm");
    const Rows hidden = affine(accumulated, "output.weight");
    result.logits = zeros(n, table.size());
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t v = 0; v < table.size(); ++v) {
        for (std::size_t c = 0; c < d; ++c) result.logits[i][v] += hidden[i][c] * table[v][c];
      }
    }
    result.penalty = result.ponder;
    for (const char* name : {"embedding.table", "output.weight"}) {
      for (const auto& row : weights.at(name)) {
        for (const double w : row) result.penalty += config.l2 * w * w;
      }
    }
    return result;
  }
};

}  // namespace weft::reference
