#include "nn/position_bias.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "ops/embedding/embedding.h"
#include "ops/views/views.h"

namespace weft::nn {

PositionBias::PositionBias(const std::string& kind, i64 heads, i64 longest, DType dtype)
    : heads_(heads), longest_(longest), dtype_(dtype) {
  require(kind == "alibi" || kind == "relative",
          "attention: the bias by position is alibi or relative, got '{}'", kind);
  if (kind == "alibi") return;
  require(longest > 0, "attention: relative biases need the longest sequence (max_length)");
  table_ = Parameter({2 * longest - 1, heads}, {Initializer::normal, 0.02}, dtype);
}

// [1, H, n, S]
Tensor PositionBias::alibi(i64 before, i64 n, i64 S) const {
  const Tensor bias = Tensor::empty({1, heads_, n, S}, DType::f64);
  const View<double, 4> view = bias.view<double, 4>();
  for (i64 h = 0; h < heads_; ++h) {
    const double slope = std::exp2(-8.0 * double(h + 1) / double(heads_));
    for (i64 i = 0; i < n; ++i) {
      for (i64 j = 0; j < S; ++j) view(0, h, i, j) = -slope * double(std::abs(before + i - j));
    }
  }
  return bias.to(dtype_);
}

// [n, S] i64: rows of the table.
Tensor PositionBias::rows(i64 before, i64 n, i64 S) const {
  const Tensor rows = Tensor::empty({n, S}, DType::i64);
  const View<i64, 2> view = rows.view<i64, 2>();
  for (i64 i = 0; i < n; ++i) {
    for (i64 j = 0; j < S; ++j) {
      view(i, j) = std::clamp(j - before - i, 1 - longest_, longest_ - 1) + longest_ - 1;
    }
  }
  return rows;
}

Tensor PositionBias::constant(Device device, i64 before, i64 n, i64 S) const {
  const std::array<i64, 3> positions = {before, n, S};
  const std::lock_guard lock(constant_->mutex);
  if (constant_->positions != positions || constant_->value.device() != device) {
    const Tensor value = table_.defined() ? rows(before, n, S) : alibi(before, n, S);
    constant_->value = value.to(device);
    constant_->positions = positions;
  }
  return constant_->value;
}

Variable PositionBias::operator()(Device device, i64 before, i64 n, i64 S) const {
  const Tensor fixed = constant(device, before, n, S);
  if (!table_.defined()) return fixed;
  const Variable bias = embedding(table_, fixed);  // [n, S, H]
  return reshape(transpose(transpose(bias, 1, 2), 0, 1), {1, heads_, n, S});
}

}  // namespace weft::nn
