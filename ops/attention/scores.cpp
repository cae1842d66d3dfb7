#include "ops/attention/scores.h"

#include <cmath>
#include <limits>

#include "ops/pointwise/pointwise.h"

namespace weft {

OptionSheet temperature_option() {
  return {.name = "temperature",
          .initial = "0",
          .help = "factor of the scores before the softmax; 0: 1/sqrt(E)",
          .least = 0,
          .most = 1e6,
          .tried = {"0.7"}};
}

double temperature_of(const AttentionSpec& spec, std::int64_t E) {
  const double given = spec.number("temperature");
  return given > 0 ? given : 1 / std::sqrt(static_cast<double>(E));
}

Tensor visibility(const AttentionCall& call, std::int64_t B, std::int64_t N, std::int64_t S) {
  const auto limit = [](const Tensor& lengths, std::int64_t b, std::int64_t all) {
    return lengths.defined() ? lengths.to_vector<std::int64_t>()[std::size_t(b)] : all;
  };
  Tensor seen = Tensor::zeros({B, 1, N, S}, DType::f64);
  const View<double, 4> view = seen.view<double, 4>();
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int64_t keys = limit(call.lengths, b, S), queries = limit(call.query_lengths, b, N);
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
