// Parses a command line, and the files of its --config options, to the commands of an app. Options
// are applied in layers: the files in their order, then the line; later ones override earlier ones.
// A layer that names a preset resets all settings of model and training to that preset first. When
// a run is resumed, its saved settings replace every preset. The dropout rate of attention weights
// is 0 for a mechanism that drops none, unless one is given by the layer that names the mechanism
// or by a later one, which is refused.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/command_line/command_line.h"

namespace weft {

// The configuration in the last complete checkpoint of the run that `run` resumes.
std::string configuration_to_resume(const RunOptions& run);
// Throws, naming the option, if `wanted` differs from `saved`. Only the length of the training,
// the place of the data and the precision may differ, and the seed if there are several.
void check_resumed(const Configuration& wanted, const Configuration& saved, const RunOptions& run);

// Whether the words give this option.
bool gives(const std::vector<std::string>& words, const std::string& option);
// Throws for an option on the line that would have no effect. In a file, which may hold all
// options, it is accepted.
void check_effect(const std::vector<std::string>& line, const Configuration& settings,
                  const RunOptions& run);
// The dropout rate of attention weights that counts for this mechanism: 0 if it drops none. Throws
// if that one was given.
double dropout_of(const std::string& attention, double rate, bool given);

// Reads layers into Commands. `add` registers their options with a CommandLine; `preset` returns
// the settings of a preset.
template <class Commands, class Settings>
class CommandReader {
 public:
  using Words = std::vector<std::string>;

  CommandReader(const CommandLine::Names& names, void (*add)(CommandLine& line, Commands& commands),
                Settings (*preset)(const std::string& name))
      : names_(names), add_(add), preset_(preset) {}

  // Returns the command's name.
  std::string read(const Words& words, Commands& commands) const {
    const std::string command = parse(words, commands);
    const std::vector<Words> layers = layers_of(words, commands);
    const auto lay_all = [&](const std::optional<Settings>& saved) {
      commands = {};
      auto& settings = command == "info" ? commands.info.settings : commands.train.settings;
      if (saved) settings = *saved;
      bool given = false;
      for (const Words& layer : layers) {
        const bool reset = lay(layer, commands, settings, saved);
        const bool other = reset || gives(layer, "--attention");
        given = gives(layer, "--attention-dropout") || (given && !other);
      }
      settle(settings, given);
    };
    lay_all({});
    RunOptions& run = commands.train.run;
    if (run.resume) {
      check(run);
      auto saved = settings_from_json<Settings>(configuration_to_resume(run), run.out);
      settle(saved, false);
      lay_all(saved);
      check_resumed(configuration_of(commands.train.settings), configuration_of(saved), run);
      const std::string& before = saved.model.precision;
      if (before != commands.train.settings.model.precision) run.precision_before = before;
    }
    const bool info = command == "info";
    check_effect(words, configuration_of(info ? commands.info.settings : commands.train.settings),
                 run);
    if (!run.out.empty()) run.resume_command = resume_command(words);
    return command;
  }

 private:
  std::string parse(const Words& words, Commands& commands) const {
    CommandLine line(names_);
    add_(line, commands);
    const std::string command = line.parse(words);
    if (line.threads() > 0) commands.train.run.threads = line.threads();
    return command;
  }

  static void settle(Settings& settings, bool given) {
    auto& model = settings.model;
    model.attention_dropout = dropout_of(model.attention, model.attention_dropout, given);
  }

  // Applies a layer. Returns whether it names a preset.
  bool lay(const Words& layer, Commands& commands, Settings& settings,
           const std::optional<Settings>& saved) const {
    const std::string below = std::exchange(settings.preset, "");
    parse(layer, commands);
    const bool reset = !settings.preset.empty();
    if (!reset) {
      settings.preset = below;
    } else {
      settings = saved ? *saved : preset_(settings.preset);
      parse(layer, commands);
    }
    return reset;
  }

  // Throws if the words of a layer alone are wrong.
  void try_out(const Words& layer) const {
    Commands tried;
    lay(layer, tried, tried.train.settings, {});
    check(tried.train.settings);
    check(tried.train.run);
  }

  // Tries a file as a whole. If it is wrong, each entry is tried alone, so that an error names its
  // line in the file; if all are right, they contradict each other, which a later layer may settle.
  void try_out(const Words& layer, const std::vector<ConfigEntry>& entries) const {
    try {
      return try_out(layer);
    } catch (const Error&) {
    }
    for (const ConfigEntry& entry : entries) {
      Words alone = entry.words;
      alone.insert(alone.begin(), layer.front());
      try {
        try_out(alone);
      } catch (const Error& error) {
        fail("{}: {}", entry.place, error.what());
      }
    }
  }

  // The layers: the files named on the line, and the line.
  std::vector<Words> layers_of(const Words& words, Commands& commands) const {
    std::vector<Words> layers;
    const std::string train = names_.known.front();
    for (const std::string& file : commands.train.run.config) {
      CommandLine line(names_);
      add_(line, commands);
      const auto entries = read_config(file, line.command(train));
      Words layer = {train};
      for (const ConfigEntry& entry : entries) {
        layer.insert(layer.end(), entry.words.begin(), entry.words.end());
      }
      try_out(layer, entries);
      layers.push_back(std::move(layer));
    }
    layers.push_back(words);
    return layers;
  }

  const CommandLine::Names& names_;
  void (*add_)(CommandLine& line, Commands& commands);
  Settings (*preset_)(const std::string& name);
};

}  // namespace weft
