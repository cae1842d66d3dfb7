#include "apps/common/configuration.h"

namespace weft {

nlohmann::json parse_configuration(const std::string& text, const std::string& source) {
  using nlohmann::json;
  const auto flat = [&](int depth, json::parse_event_t, json&) {
    require(depth <= 1, "{}: its configuration is nested", source);
    return true;
  };
  json values;
  try {
    values = json::parse(text, flat);
  } catch (const json::exception&) {
    fail("{}: its configuration is not JSON", source);
  }
  return values;
}

}  // namespace weft
