// The settings of an app as the JSON object that its checkpoints carry, and what else marks these.
#pragma once

#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/common/plugin.h"
#include "apps/common/settings.h"
#include "nn/checkpoint.h"

namespace weft {

template <class Settings>
nlohmann::ordered_json to_json(const Settings& settings) {
  nlohmann::ordered_json json;
  json["preset"] = settings.preset;
  each_setting(settings, [&](const char* name, const auto& value, const Limits&, const char*) {
    json[name] = value;
  });
  return json;
}

// What stands in `text`, which is not trusted; `source` begins every error.
nlohmann::json parse_configuration(const std::string& text, const std::string& source);
// The library would convert between kinds of numbers, cutting off what does not fit.
template <class T>
bool take_value(const nlohmann::json& from, T& to) {
  const bool fits = std::is_same_v<T, bool>            ? from.is_boolean()
                    : std::is_same_v<T, std::string>   ? from.is_string()
                    : std::is_same_v<T, double>        ? from.is_number()
                    : std::is_same_v<T, std::uint64_t> ? from.is_number_unsigned()
                                                       : from.is_number_integer();
  if (fits) from.get_to(to);
  return fits;
}

// The settings that to_json() wrote, here or in an earlier version, checked by the app's own
// check().
template <class Settings>
Settings settings_from_json(const std::string& text, const std::string& source) {
  const nlohmann::json values = parse_configuration(text, source);
  Settings settings;
  const auto take = [&](const std::string& name, auto& value) {
    require(values.is_object() && values.contains(name), "{}: its configuration has no '{}'",
            source, name);
    require(take_value(values.at(name), value), "{}: '{}' in its configuration has the wrong type",
            source, name);
  };
  take("preset", settings.preset);
  each_setting(settings,
               [&](const std::string& name, auto& value, const Limits& limits, const char*) {
                 if (!limits.later || values.contains(name)) take(name, value);
               });
  if constexpr (requires { settings.model.attention; }) {
    require_mechanism(settings.model.attention, source);
  }
  try {
    check(settings);
  } catch (const Error& error) {
    fail("{}: its configuration: {}", source, error.what());
  }
  return settings;
}

// --- checkpoints

// What an app's checkpoints are known by. Their metadata holds APP_format, weft_version and
// configuration.
struct CheckpointFormat {
  std::string app;
  std::string version;                 // the value of APP_format
  std::vector<std::string> more = {};  // further keys that must be there
};

// What a checkpoint of this configuration says about itself, but for the further keys.
std::map<std::string, std::string> checkpoint_metadata(const CheckpointFormat& format,
                                                       const nlohmann::ordered_json& configuration);
// Throws where the file is not the app's, or of another version.
Checkpoint read_checkpoint(const std::string& file, const CheckpointFormat& format);
// load_tensors(). Weights that are not finite are loaded, with a warning on stderr that begins
// with `app`.
void load_weights(const std::vector<NamedTensor>& own, const Checkpoint& checkpoint,
                  const std::string& app, const std::string& file);

// Where a model's settings, those of these names, are not its preset's, says so in a note; `now`
// and `preset` are settings as JSON. Returns what the model is called: "text8-full-conv, changed".
std::string name_of_preset(const nlohmann::ordered_json& now, const nlohmann::ordered_json& preset,
                           const std::vector<std::string>& names, Progress& progress);

// --- on the command line

void print_json(const nlohmann::ordered_json& json);

// The text with its line ends and other control characters as JSON has them.
std::string on_one_line(const std::string& text);

// What `info` says: `model` has settings, parameters() and metadata.
nlohmann::ordered_json information(const std::string& preset,
                                   const nlohmann::ordered_json& configuration,
                                   const std::vector<NamedParameter>& parameters,
                                   const std::map<std::string, std::string>& metadata);
template <class Model>
int print_information(const Model& model, bool json) {
  const std::vector<NamedParameter> parameters = model.parameters();
  if (json) {
    print_json(
        information(model.settings.preset, to_json(model.settings), parameters, model.metadata));
    return 0;
  }
  fmt::print("{}", parameter_table(parameters));
  for (const auto& [key, value] : model.metadata) fmt::print("{}: {}\n", key, on_one_line(value));
  return 0;
}

}  // namespace weft
