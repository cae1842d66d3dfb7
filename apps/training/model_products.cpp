#include "apps/training/model_products.h"

#include <algorithm>

namespace weft {

double products_per_sequence(const std::vector<NamedParameter>& parameters,
                             const AttentionLayers& layers,
                             const std::function<double(const std::string& name)>& uses) {
  const auto of_mechanism = [inputs = attention_inputs(layers.spec)](const std::string& name) {
    return std::ranges::any_of(inputs, [&](const AttentionInput& input) {
      return input.role == Role::parameter && name.ends_with("attention." + input.name);
    });
  };
  double forward = 0;
  for (const NamedParameter& p : parameters) {
    const Shape& shape = p.variable.shape();
    if (shape.rank() < 2 || of_mechanism(p.name)) continue;
    forward += 2.0 * static_cast<double>(shape.count()) * uses(p.name);
  }
  const AttentionCost cost = attention_cost(layers.spec, layers.sizes, layers.causal, DType::f32);
  return 3 * forward +
         static_cast<double>(layers.count) * (cost.forward_operations + cost.backward_operations);
}

}  // namespace weft
