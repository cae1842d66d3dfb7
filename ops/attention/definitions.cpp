#include "ops/attention/definitions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/attention/scores.h"
#include "ops/dropout/dropout.h"
#include "ops/gather/gather.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

namespace weft {

Variable column(const Variable& x) {
  Shape shape = x.shape();
  shape.push_back(1);
  return reshape(x, shape);
}

Variable unit_rows(const Variable& x) {
  const bool wide = x.value().dtype() == DType::f64;
  const auto number = [&](double value) {
    return Tensor::full({}, value, x.value().dtype(), x.value().device());
  };
  const Variable norm = column(sqrt(sum(mul(x, x), -1)));
  // The log of the least norm above 0 is −51.6 in f32 and −372 in f64.
  const Tensor tiny = number(wide ? 1e-300 : 1e-37), below_all = number(wide ? -400 : -60);
  const Variable is_zero = relu(sub(below_all, log(add(norm.value(), tiny))));  // > 25, otherwise 0
  return div(x, add(norm, scale(is_zero, wide ? 1e300 : 1e36)));
}

Tensor existence(const Tensor& lengths, i64 B, i64 positions, DType type) {
  const Tensor mask = Tensor::zeros({B, positions, 1}, type);
  for (i64 b = 0; b < B; ++b) {
    mask.slice(0, b, b + 1).slice(1, 0, length_of(lengths, b, positions)).fill(1);
  }
  return mask;
}

Tensor visibility(const AttentionCall& call, i64 B, i64 N, i64 S) {
  Tensor seen = Tensor::zeros({B, 1, N, S}, DType::f64);
  const View<double, 4> view = seen.view<double, 4>();
  for (i64 b = 0; b < B; ++b) {
    const i64 keys = length_of(call.lengths, b, S);
    const i64 queries = length_of(call.query_lengths, b, N);
    for (i64 i = 0; i < queries; ++i) {
      for (i64 j = 0; j < (call.causal ? std::min(keys, i + 1) : keys); ++j) view(b, 0, i, j) = 1;
    }
  }
  return seen;
}

Variable item_by_item(const Variable& x, const Tensor& lengths, i64 width,
                      const std::function<Variable(i64 b, const Variable& x)>& f) {
  const i64 B = x.size(0), N = x.size(1);
  if (B * N == 0) return reshape(x, {B, N, width});
  std::vector<Variable> items;
  for (i64 b = 0; b < B; ++b) {
    const i64 n = length_of(lengths, b, N);
    std::vector<Variable> parts;
    if (n > 0) parts.push_back(f(b, slice(slice(x, 0, b, b + 1), 1, 0, n)));
    if (n < N) {
      parts.push_back(Tensor::zeros({1, N - n, width}, x.value().dtype(), x.value().device()));
    }
    items.push_back(concatenate(parts, 1));
  }
  return concatenate(items, 0);
}

Variable masked(const Variable& z, const Tensor& seen) {
  if (!seen.defined()) return z;
  const Tensor hidden = seen.to(DType::f64).clone();
  for (double& value : std::span(hidden.data<double>(), static_cast<std::size_t>(hidden.count()))) {
    value = value == 0 ? -std::numeric_limits<double>::infinity() : 0;
  }
  return add(z, hidden.to(z.value().dtype()).to(z.value().device()));
}

namespace {

// d ⊙ a, for a [B, H, N, S].
Variable dropped(const Variable& a, const AttentionCall& call, const MaskColumns& columns) {
  if (!columns.of || call.dropout == 0) return dropout(a, call.dropout, call.random);
  const i64 N = a.size(2), S = a.size(3);
  const Tensor index = Tensor::empty({1, 1, N, S}, DType::i64);
  for (i64 i = 0; i < N; ++i) {
    for (i64 j = 0; j < S; ++j) index.data<i64>()[i * S + j] = columns.of(i, j);
  }
  const Tensor ones = Tensor::full({a.size(0), a.size(1), N, columns.count}, 1, a.value().dtype());
  return mul(a, gather(dropout(ones, call.dropout, call.random), 3, index));
}

}  // namespace

Variable attention_over(const Tensor& seen, double temperature, const AttentionCall& call,
                        const Variable& q, const Variable& k, const Variable& v,
                        const Variable& bias, const MaskColumns& columns) {
  const Variable products = matmul(transpose(q, 1, 2), transpose(transpose(k, 1, 2), 2, 3));
  Variable z = scale(products, temperature);
  if (bias.defined()) z = add(z, bias);
  const Variable a = softmax(masked(z, seen));
  return transpose(matmul(dropped(a, call, columns), transpose(v, 1, 2)), 1, 2);
}

Tensor self_visibility(const AttentionCall& call, i64 B, i64 heads, i64 N,
                       const std::function<bool(i64 b, i64 h, i64 i, i64 j)>& sees) {
  AttentionCall self = call;
  self.query_lengths = call.lengths;
  const Tensor seen = visibility(self, B, N, N).expand({B, heads, N, N}).clone();
  const View<double, 4> view = seen.view<double, 4>();
  for (i64 b = 0; b < B; ++b) {
    for (i64 h = 0; h < heads; ++h) {
      for (i64 i = 0; i < N; ++i) {
        for (i64 j = 0; j < N; ++j) {
          if (!sees(b, h, i, j)) view(b, h, i, j) = 0;
        }
      }
    }
  }
  return seen;
}

Tensor largest(const Tensor& z, i64 k, const std::function<i64(i64 b, i64 i)>& count) {
  const i64 B = z.size(0), H = z.size(1), N = z.size(2), S = z.size(3);
  const Tensor keys = Tensor::full({B, H, N, k}, -1, DType::i64);
  const std::vector<double> numbers = z.to(DType::f64).to_vector<double>();
  for (i64 row = 0; row < B * H * N; ++row) {
    std::vector<i64> order(static_cast<std::size_t>(count(row / N / H, row % N)));
    std::iota(order.begin(), order.end(), i64{0});
    const double* const score = numbers.data() + row * S;
    std::stable_sort(order.begin(), order.end(), [&](i64 a, i64 b) {  // NaN first
      return !std::isnan(score[b]) && (std::isnan(score[a]) || score[a] > score[b]);
    });
    order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
    std::sort(order.begin(), order.end());
    std::copy(order.begin(), order.end(), keys.data<i64>() + row * k);
  }
  return keys;
}

ChosenKeys::ChosenKeys(const Tensor& keys, DType type)
    : index(keys.to(DType::i64).clone()), there(Tensor::full(keys.shape(), 1, type)) {
  const Tensor chosen = there.reshape({there.count()});
  for (i64 i = 0; i < index.count(); ++i) {
    i64& key = index.data<i64>()[i];
    if (key >= 0) continue;
    key = 0;
    chosen.slice(0, i, i + 1).fill(0);
  }
}

Variable ChosenKeys::of(const Variable& z) const { return gather(z, 3, index); }

Variable ChosenKeys::sum(const Variable& a, const Variable& v) const {
  const i64 B = index.size(0), H = index.size(1), N = index.size(2), k = index.size(3);
  const Variable rows = gather(v, 2, index.reshape({B, H, N * k, 1}));
  return weft::sum(mul(column(a), reshape(rows, {B, H, N, k, v.size(3)})), 3);
}

}  // namespace weft
