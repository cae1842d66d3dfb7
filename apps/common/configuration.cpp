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

void print_json(const nlohmann::ordered_json& json) {
  using Handler = nlohmann::ordered_json::error_handler_t;
  fmt::print("{}\n", json.dump(-1, ' ', false, Handler::replace));
}

nlohmann::ordered_json information(const std::string& preset,
                                   const nlohmann::ordered_json& configuration,
                                   const std::vector<NamedParameter>& parameters,
                                   const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  std::int64_t count = 0;
  for (const NamedParameter& parameter : parameters) {
    const Shape& shape = parameter.variable.shape();
    count += shape.count();
    tensors.push_back({{"name", parameter.name},
                       {"shape", std::vector(shape.begin(), shape.end())},
                       {"count", shape.count()}});
  }
  nlohmann::ordered_json line = {{"preset", preset},
                                 {"parameters", count},
                                 {"configuration", configuration},
                                 {"tensors", tensors}};
  if (!metadata.empty()) line["metadata"] = metadata;
  return line;
}

}  // namespace weft
