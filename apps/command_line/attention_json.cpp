#include "apps/command_line/attention_json.h"

#include "ops/attention/mechanism.h"

namespace weft {

Json to_json(const AttentionSpec& spec) {
  Json attention = {{"mechanism", spec.mechanism().name}};
  for (const OptionSheet& option : spec.mechanism().options) {
    if (option.choices.empty() && option.whole) {
      attention[option.name] = spec.integer(option.name);
    } else if (option.choices.empty()) {
      attention[option.name] = spec.number(option.name);
    } else {
      attention[option.name] = spec.word(option.name);
    }
  }
  if (spec.inner() != nullptr) attention["inner"] = to_json(*spec.inner());
  return attention;
}

}  // namespace weft
