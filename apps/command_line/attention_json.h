// An attention specification as JSON, for programs that do not know the options' defaults.
#pragma once

#include "apps/command_line/json.h"
#include "ops/attention/spec.h"

namespace weft {

// The mechanism and the values of all its options; for a wrapper also the inner one, as `inner`.
Json to_json(const AttentionSpec& spec);

}  // namespace weft
