#include "apps/common/configuration.h"

namespace weft {
namespace {

// What is not UTF-8 is replaced: a path may hold any bytes.
std::string dumped(const nlohmann::ordered_json& json) {
  using Handler = nlohmann::ordered_json::error_handler_t;
  return json.dump(-1, ' ', false, Handler::replace);
}

}  // namespace

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

std::map<std::string, std::string> checkpoint_metadata(
    const CheckpointFormat& format, const nlohmann::ordered_json& configuration) {
  return {{format.app + "_format", format.version},
          {"weft_version", WEFT_VERSION},
          {"configuration", dumped(configuration)}};
}

Checkpoint read_checkpoint(const std::string& file, const CheckpointFormat& format) {
  Checkpoint checkpoint = read_checkpoint(file);
  const auto& metadata = checkpoint.metadata;
  const std::string format_key = format.app + "_format";
  std::vector<std::string> wanted = format.more;
  wanted.insert(wanted.end(), {format_key, "configuration"});
  for (const std::string& key : wanted) {
    require(metadata.contains(key), "{}: is a safetensors file, but not one that {} wrote", file,
            format.app);
  }
  require(metadata.at(format_key) == format.version, "{}: is of format {}, this {} reads format {}",
          file, metadata.at(format_key), format.app, format.version);
  return checkpoint;
}

void load_weights(const std::vector<NamedTensor>& own, const Checkpoint& checkpoint,
                  const std::string& app, const std::string& file) {
  load_tensors(own, checkpoint.tensors, file);
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!all_finite(tensor)) fmt::print(stderr, "{}: {}: '{}' is not finite\n", app, file, name);
  }
}

std::string on_one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool plain = static_cast<unsigned char>(c) >= ' ' && c != 0x7f;
    line += plain ? std::string(1, c) : c == '\n' ? "\\n" : fmt::format("\\u{:04x}", c);
  }
  return line;
}

std::string name_of_preset(const nlohmann::ordered_json& now, const nlohmann::ordered_json& preset,
                           const std::vector<std::string>& names, Progress& progress) {
  const auto shown = [](const nlohmann::ordered_json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  std::string changes;
  for (const std::string& name : names) {
    if (now.at(name) == preset.at(name)) continue;
    changes += fmt::format("{}{} {} (preset: {})", changes.empty() ? "" : ", ", name,
                           shown(now.at(name)), shown(preset.at(name)));
  }
  const auto name = preset.at("preset").get<std::string>();
  if (changes.empty()) return name;
  progress.note(fmt::format("the model is not that of {}: {}", name, changes));
  return name + ", changed";
}

void print_json(const nlohmann::ordered_json& json) { fmt::print("{}\n", dumped(json)); }

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
