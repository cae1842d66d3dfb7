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
  // Keys and values are also projected from the positions before the queries.
  const AttentionSizes& s = layers.sizes;
  AttentionSizes one = s;  // position
  one.N = one.S = 1;
  for (const AttentionInput& input : attention_inputs(layers.spec, one)) {
    const bool projected = input.role == Role::projected && !input.optional;
    if (!projected || input.side != Side::reference) continue;
    forward += 2.0 * static_cast<double>(layers.count * (s.S - s.N) * s.d * input.shape.count());
  }
  const AttentionCost cost = attention_cost(layers.spec, s, layers.causal, DType::f32);
  return 3 * forward +
         static_cast<double>(layers.count) * (cost.forward_operations + cost.backward_operations);
}

}  // namespace weft
