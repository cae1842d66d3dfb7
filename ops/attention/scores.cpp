#include "ops/attention/scores.h"

#include <cmath>
#include <limits>

#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace weft {

OptionSheet temperature_option() {
  return {.name = "temperature",
          .initial = "0",
          .help = "factor of the scores before the softmax; 0: 1/sqrt(E)",
          .least = 0,
          .most = 1e6,
          .whole = false,
          .tried = {"0.7"}};
}

double temperature_of(const AttentionSpec& spec, std::int64_t E) {
  const double given = spec.number("temperature");
  return given > 0 ? given : 1 / std::sqrt(static_cast<double>(E));
}

std::vector<AttentionInput> query_key_value() {
  return {{.name = "q", .shape = "B N H E", .matrix = "qkv"},
          {.name = "k", .side = Side::reference, .shape = "B S H E", .matrix = "qkv"},
          {.name = "v", .side = Side::reference, .shape = "B S H M", .matrix = "qkv"}};
}

Variable unit_rows(const Variable& x) {
  Shape shape = x.shape();
  shape[shape.rank() - 1] = 1;
  return mul(x, reshape(exp(scale(log(sum(mul(x, x), -1)), -0.5)), shape));
}

Tensor visibility(const AttentionCall& call, std::int64_t B, std::int64_t N, std::int64_t S) {
  Tensor seen = Tensor::zeros({B, 1, N, S}, DType::f64);
  const View<double, 4> view = seen.view<double, 4>();
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int64_t keys = length_of(call.lengths, b, S);
    const std::int64_t queries = length_of(call.query_lengths, b, N);
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = 0; j < (call.causal ? std::min(keys, i + 1) : keys); ++j) {
        view(b, 0, i, j) = 1;
      }
    }
  }
  return seen;
}

Variable masked(const Variable& z, const Tensor& seen) {
  const Tensor hidden = seen.to(DType::f64).clone();
  for (double& value : std::span(hidden.data<double>(), static_cast<std::size_t>(hidden.count()))) {
    value = value == 0 ? -std::numeric_limits<double>::infinity() : 0;
  }
  return add(z, hidden.to(z.value().dtype()));
}

}  // namespace weft
