// The universal transformer of one sequence, of the maps of reference.h: the definition that the
// tests compare the model with.
#pragma once

#include <algorithm>

#include "nn/universal_transformer.h"
#include "tests/nn/reference.h"

namespace weft::reference {

struct Model : Weights {
  UniversalTransformerConfig config;

  explicit Model(UniversalTransformer& model) : Weights(model), config(model.config()) {}

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
        const std::string name = block + ".attention";
        return config.attention == "full"
                   ? full(x, name, config.heads, true, config.encoding == "rotary")
                   : agglomerative(x, name);
      };
      if (config.wiring == "prenorm") {
        h = sum(h, mixed(norm(h, block + ".norm1")));
        h = sum(h, feed_forward(norm(h, block + ".norm2"), block + ".feed_forward"));
      } else {
        const Rows y = norm(sum(h, mixed(h)), block + ".norm1");
        h = norm(sum(y, feed_forward(y, block + ".feed_forward")), block + ".norm2");
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
    if (config.wiring == "prenorm") accumulated = norm(accumulated, "norm");
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
