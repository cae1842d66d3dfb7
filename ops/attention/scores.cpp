#include "ops/attention/scores.h"

#include <cmath>

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

double temperature_of(const AttentionSpec& spec, i64 E) {
  const double given = spec.number("temperature");
  return given > 0 ? given : 1 / std::sqrt(static_cast<double>(E));
}

AttentionInputs query_key_value(const AttentionSpec&, const AttentionSizes&) {
  return {{.name = "q", .axes = "B N H E", .matrix = "qkv"},
          {.name = "k", .side = Side::reference, .axes = "B S H E", .matrix = "qkv"},
          {.name = "v", .side = Side::reference, .axes = "B S H M", .matrix = "qkv"}};
}

}  // namespace weft
