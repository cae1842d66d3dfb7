// Gradients of a sequence classifier against central differences.
#pragma once

#include "nn/sequence_classifier.h"
#include "tests/check.h"

namespace weft {

inline void check_gradients_of(SequenceClassifier& model, const Tensor& symbols,
                               const Tensor& lengths) {
  std::vector<Tensor> starts;
  const auto named = parameters(model);
  for (const NamedParameter& p : named) starts.push_back(p.variable.value().clone());
  const auto f = [&](std::span<const Variable> leaves) {
    std::size_t i = 0;
    each_parameter(model, [&](const std::string&, Parameter& p) { p.variable = leaves[i++]; });
    Context context = Context::evaluation();
    return std::vector{model(context, symbols, lengths)};
  };
  CHECK_GRADIENTS(f, starts, 5, 1e-6, 40);
}

}  // namespace weft
