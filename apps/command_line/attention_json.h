// An attention in JSON, for programs that do not know the defaults of options.
#pragma once

#include "apps/command_line/json.h"
#include "ops/attention/spec.h"

namespace weft {

// Its mechanism, and the values of all options; of a wrapper also what it stands before, as `inner`.
Json to_json(const AttentionSpec& spec);

}  // namespace weft
