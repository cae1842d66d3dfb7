// An attention in JSON, for programs that do not know the defaults of options.
#pragma once

#include <nlohmann/json.hpp>

#include "ops/attention/spec.h"

namespace weft {

// Its mechanism, and the values of all options; of a wrapper also what it stands before, as `inner`.
nlohmann::ordered_json to_json(const AttentionSpec& spec);

}  // namespace weft
