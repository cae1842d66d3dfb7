// The configuration in a checkpoint: an app's settings as a JSON object, and the checkpoint's other
// metadata.
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

// Settings by name, in the app's order.
using Configuration = Json::Object;

template <class Settings>
Configuration configuration_of(const Settings& settings) {
  Configuration all = {{"preset", settings.preset}};
  each_setting(settings, [&](const char* name, const auto& value, const Limits&, const char*) {
    all.emplace_back(name, value);
  });
  return all;
}

// The configuration as JSON text.
std::string text_of(const Configuration& configuration);
// Parses `text`, which is not trusted. Errors begin with `source`.
Configuration parse_configuration(const std::string& text, const std::string& source);

// Converts a configuration, of this or an earlier version, to settings, and runs the app's check()
// on them.
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

// Identifies an app's checkpoints. Their metadata holds APP_format, weft_version and configuration.
struct CheckpointFormat {
  std::string app;
  std::string version;                 // the value of APP_format
  std::vector<std::string> more = {};  // further required keys
};

// The metadata of a checkpoint with this configuration, without the further keys.
std::map<std::string, std::string> checkpoint_metadata(const CheckpointFormat& format,
                                                       const Configuration& configuration);
// Without the tensors of export --example. Throws if the file is not a checkpoint of this app, or
// has another format version.
Checkpoint read_checkpoint(const std::string& file, const CheckpointFormat& format);
// The number of elements in a checkpoint.
i64 numbers_in(const Checkpoint& checkpoint);
// Throws if the file holds fewer elements than `claimed`, a lower bound from the configured sizes:
// before anything is allocated for them.
void check_claims(i64 claimed, const Checkpoint& checkpoint, const std::string& file,
                  const std::string& sizes);
// load_tensors(), and a warning on stderr, beginning with `app`, for weights that are not finite.
void load_weights(const std::vector<NamedTensor>& own, const Checkpoint& checkpoint,
                  const std::string& app, const std::string& file);

// Prints a note if the model's settings (those in `names`) differ from its preset's. `now` and
// `preset` are configurations of the same app. Returns the model's name: "text8-full-conv" or
// "text8-full-conv, changed".
std::string name_of_preset(const Configuration& now, const Configuration& preset,
                           const std::vector<std::string>& names, Progress& progress);

// --- on the command line

// The text with line ends and other control characters escaped as in JSON.
std::string on_one_line(const std::string& text);

// Prints the output of `info` as one JSON object.
void print_information(const std::string& preset, const Configuration& configuration,
                       const std::vector<NamedParameter>& parameters,
                       const std::map<std::string, std::string>& metadata);
// Prints the output of `info`, as JSON or as text. `model` has settings, parameters() and metadata.
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
