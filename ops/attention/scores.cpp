#include "ops/attention/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/views/views.h"

namespace weft {

OptionSheet flag_option(const std::string& name, bool initial, const std::string& help,
                        const std::string& with) {
  return {.name = name,
          .initial = initial ? "1" : "0",
          .help = help,
          .least = 0,
          .most = 1,
          .with = with,
          .tried = {initial ? "0" : "1"}};
}

OptionSheet temperature_option(const std::string& with) {
  return {.name = "temperature",
          .initial = "0",
          .help = "factor of the scores before the softmax; 0: 1/sqrt(E)",
          .least = 0,
          .most = 1e6,
          .whole = false,
          .with = with,
          .tried = {"0.7"}};
}

double temperature_of(const AttentionSpec& spec, i64 E) {
  const double given = spec.number("temperature");
  require(given == 0 || given >= std::numeric_limits<float>::min(),
          "{}: temperature is 0 or a number in [1.2e-38, 1e6], got {}", spec.mechanism().name,
          given);
  return given > 0 ? given : 1 / std::sqrt(static_cast<double>(E));
}

i64 width_of(const AttentionSpec& spec, const AttentionSizes& sizes) {
  const i64 given = spec.integer("width");
  return given > 0 ? given : sizes.d;
}

AttentionInputs query_key_value(const AttentionSpec&, const AttentionSizes&) {
  return {{.name = "q", .axes = "B N H E", .matrix = "qkv"},
          {.name = "k", .side = Side::reference, .axes = "B S H E", .matrix = "qkv"},
          {.name = "v", .side = Side::reference, .axes = "B S H M", .matrix = "qkv"}};
}

AttentionInput learnt(const std::string& name, const std::string& axes, const Shape& shape,
                      Initializer weight) {
  return {.name = name, .role = Role::parameter, .axes = axes, .shape = shape, .weight = weight};
}

Initializer uniform_by_fan_in(i64 in) {
  return {Initializer::uniform, 1 / std::sqrt(double(std::max<i64>(in, 1)))};
}

i64 count_of(const AttentionInputs& inputs, Role role) {
  i64 count = 0;
  for (const AttentionInput& input : inputs) count += input.role == role ? input.shape.count() : 0;
  return count;
}

Variable entry_of(const Variable& all, i64 t) {
  Shape shape;
  for (int axis = 1; axis < all.value().rank(); ++axis) shape.push_back(all.size(axis));
  return reshape(slice(all, 0, t, t + 1), shape);
}

// Empty slices of the unused inputs are concatenated.
Variable with_zero_gradients(const Variable& x, std::span<const Variable> unused) {
  std::vector<Variable> parts{x};
  for (const Variable& input : unused) {
    parts.push_back(reshape(slice(input, 0, 0, 0), {x.size(0), x.size(1), 0}));
  }
  return concatenate(parts, 2);
}

RandomKey attention_key(RandomKey call, i64 number) {
  if (number == 0) return call;
  constexpr i64 purposes =
      static_cast<int>(DrawPurpose::planes) - static_cast<int>(DrawPurpose::further_dropout);
  const i64 further = number - 1;
  call.seed += static_cast<std::uint64_t>(further / purposes) * 0x9e3779b97f4a7c15u;
  return call.further(DrawPurpose::further_dropout, static_cast<std::uint32_t>(further % purposes));
}

}  // namespace weft
