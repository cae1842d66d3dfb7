#include "apps/common/configuration.h"

#include <algorithm>
#include <type_traits>

#include <nlohmann/json.hpp>

namespace weft {
namespace {

// What is not UTF-8 is replaced: a path may hold any bytes.
std::string dumped(const nlohmann::ordered_json& json) {
  using Handler = nlohmann::ordered_json::error_handler_t;
  return json.dump(-1, ' ', false, Handler::replace);
}

nlohmann::ordered_json json_of(const Configuration& configuration) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : configuration) json[name] = as_json(value);
  return json;
}

template <class T>
bool take_same(const SettingValue& from, T& to) {
  const T* const held = std::get_if<T>(&from);
  if (held != nullptr) to = *held;
  return held != nullptr;
}

}  // namespace

SettingValue value_of(const nlohmann::json& json) {
  using Type = nlohmann::json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<i64>();
    case Type::number_unsigned:
      return json.get<std::uint64_t>();
    case Type::number_float:
      return json.get<double>();
    case Type::string:
      return json.get<std::string>();
    default:
      return {};
  }
}

nlohmann::ordered_json as_json(const SettingValue& value) {
  return std::visit(
      []<class T>(const T& held) -> nlohmann::ordered_json {
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else {
          return held;
        }
      },
      value);
}

bool take_value(const SettingValue& from, bool& to) { return take_same(from, to); }
bool take_value(const SettingValue& from, std::string& to) { return take_same(from, to); }
bool take_value(const SettingValue& from, std::uint64_t& to) { return take_same(from, to); }
bool take_value(const SettingValue& from, i64& to) {
  std::uint64_t natural = 0;
  if (!take_same(from, natural)) return take_same(from, to);
  to = static_cast<i64>(natural);
  return true;
}
bool take_value(const SettingValue& from, double& to) {
  return std::visit(
      [&]<class T>(const T& held) {
        constexpr bool number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
        if constexpr (number) to = static_cast<double>(held);
        return number;
      },
      from);
}

std::string text_of(const Configuration& configuration) { return dumped(json_of(configuration)); }

Configuration parse_configuration(const std::string& text, const std::string& source) {
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
  Configuration configuration;
  if (!values.is_object()) return configuration;
  for (const auto& [name, value] : values.items()) {
    configuration.emplace_back(name, value_of(value));
  }
  return configuration;
}

const SettingValue* find(const Configuration& configuration, const std::string& name) {
  const auto found = std::find_if(configuration.begin(), configuration.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == configuration.end() ? nullptr : &found->second;
}

std::map<std::string, std::string> checkpoint_metadata(const CheckpointFormat& format,
                                                       const Configuration& configuration) {
  return {{format.app + "_format", format.version},
          {"weft_version", WEFT_VERSION},
          {"configuration", text_of(configuration)}};
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

std::string name_of_preset(const Configuration& now, const Configuration& preset,
                           const std::vector<std::string>& names, Progress& progress) {
  const auto shown = [](const SettingValue& value) {
    const auto* const text = std::get_if<std::string>(&value);
    return text != nullptr ? *text : as_json(value).dump();
  };
  std::string changes;
  for (const std::string& name : names) {
    const SettingValue &own = *find(now, name), &usual = *find(preset, name);
    if (own == usual) continue;
    changes += fmt::format("{}{} {} (preset: {})", changes.empty() ? "" : ", ", name, shown(own),
                           shown(usual));
  }
  const std::string name = shown(*find(preset, "preset"));
  if (changes.empty()) return name;
  progress.note(fmt::format("the model is not that of {}: {}", name, changes));
  return name + ", changed";
}

void print_json(const nlohmann::ordered_json& json) { fmt::print("{}\n", dumped(json)); }

void print_information(const std::string& preset, const Configuration& configuration,
                       const std::vector<NamedParameter>& parameters,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  i64 count = 0;
  for (const NamedParameter& parameter : parameters) {
    const Shape& shape = parameter.variable.shape();
    count += shape.count();
    tensors.push_back({{"name", parameter.name},
                       {"shape", std::vector(shape.begin(), shape.end())},
                       {"count", shape.count()}});
  }
  nlohmann::ordered_json line = {{"preset", preset},
                                 {"parameters", count},
                                 {"configuration", json_of(configuration)},
                                 {"tensors", tensors}};
  if (!metadata.empty()) line["metadata"] = metadata;
  print_json(line);
}

}  // namespace weft
