// The settings of an app as the configuration that its checkpoints carry, a JSON object, and what
// else marks these.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "apps/command_line/json.h"
#include "apps/command_line/plugin.h"
#include "apps/command_line/progress.h"
#include "apps/command_line/settings.h"
#include "nn/checkpoint.h"

namespace weft {

// By name, in the order in which the app has them.
using Configuration = Json::Object;

template <class Settings>
Configuration configuration_of(const Settings& settings) {
  Configuration all = {{"preset", settings.preset}};
  each_setting(settings, [&](const char* name, const auto& value, const Limits&, const char*) {
    all.emplace_back(name, value);
  });
  return all;
}

// As JSON.
std::string text_of(const Configuration& configuration);
// What stands in `text`, which is not trusted; `source` begins every error.
Configuration parse_configuration(const std::string& text, const std::string& source);

// The settings whose configuration was written, here or in an earlier version, checked by the app's
// own check().
template <class Settings>
Settings settings_from_json(const std::string& text, const std::string& source) {
  const Configuration values = parse_configuration(text, source);
  Settings settings;
  const auto take = [&](const std::string& name, auto& value) {
    const Json* const found = find(values, name);
    require(found != nullptr, "{}: its configuration has no '{}'", source, name);
    require(found->take(value), "{}: '{}' in its configuration has the wrong type", source, name);
  };
  take("preset", settings.preset);
  each_setting(settings,
               [&](const std::string& name, auto& value, const Limits& limits, const char*) {
                 if (!limits.later || find(values, name) != nullptr) take(name, value);
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
                                                       const Configuration& configuration);
// Throws where the file is not the app's, or of another version.
Checkpoint read_checkpoint(const std::string& file, const CheckpointFormat& format);
// load_tensors(). Weights that are not finite are loaded, with a warning on stderr that begins
// with `app`.
void load_weights(const std::vector<NamedTensor>& own, const Checkpoint& checkpoint,
                  const std::string& app, const std::string& file);

// Where a model's settings, those of these names, are not its preset's, says so in a note; `now`
// and `preset` are of the same app. Returns what the model is called: "text8-full-conv, changed".
std::string name_of_preset(const Configuration& now, const Configuration& preset,
                           const std::vector<std::string>& names, Progress& progress);

// --- on the command line

// The text with its line ends and other control characters as JSON has them.
std::string on_one_line(const std::string& text);

// What `info` says, as one JSON object.
void print_information(const std::string& preset, const Configuration& configuration,
                       const std::vector<NamedParameter>& parameters,
                       const std::map<std::string, std::string>& metadata);
// The same, or for people; `model` has settings, parameters() and metadata.
template <class Model>
int print_information(const Model& model, bool json) {
  const std::vector<NamedParameter> parameters = model.parameters();
  if (json) {
    print_information(model.settings.preset, configuration_of(model.settings), parameters,
                      model.metadata);
    return 0;
  }
  fmt::print("{}", parameter_table(parameters));
  for (const auto& [key, value] : model.metadata) fmt::print("{}: {}\n", key, on_one_line(value));
  return 0;
}

}  // namespace weft
