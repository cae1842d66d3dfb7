// From the words of a command line, and the files that --config names in it, to the commands of an
// app. Both are layers of options, one above the other: the files in their order, then the line. A
// layer that names a preset stands on the preset alone: what lower layers say of model and training
// is forgotten. Where a run is resumed, its settings take the place of every preset.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/command_line/command_line.h"

namespace weft {

// The configuration of the run that `run` resumes: that of a last complete checkpoint.
std::string configuration_to_resume(const RunOptions& run);
// Throws, naming the option, where `wanted` is another training of the app than `saved`. Only how
// long it lasts may change, where the data lie, and with several seeds the seed.
void check_resumed(const Configuration& wanted, const Configuration& saved, const RunOptions& run);

// Reads layers into Commands. `add` gives their options to a CommandLine, `preset` makes settings.
template <class Commands, class Settings>
class CommandReader {
 public:
  using Words = std::vector<std::string>;

  CommandReader(const CommandLine::Names& names, void (*add)(CommandLine& line, Commands& commands),
                Settings (*preset)(const std::string& name))
      : names_(names), add_(add), preset_(preset) {}

  // Returns the command.
  std::string read(const Words& words, Commands& commands) const {
    const std::string command = parse(words, commands);
    const std::vector<Words> layers = layers_of(words, commands);
    const auto lay_all = [&](const std::optional<Settings>& saved) {
      commands = {};
      auto& settings = command == "info" ? commands.info.settings : commands.train.settings;
      if (saved) settings = *saved;
      for (const Words& layer : layers) lay(layer, commands, settings, saved);
    };
    lay_all({});
    RunOptions& run = commands.train.run;
    if (run.resume) {
      check(run);
      const auto saved = settings_from_json<Settings>(configuration_to_resume(run), run.out);
      lay_all(saved);
      check_resumed(configuration_of(commands.train.settings), configuration_of(saved), run);
    }
    run.resume_command = resume_command(words);
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

  // Puts a layer upon what is there.
  void lay(const Words& layer, Commands& commands, Settings& settings,
           const std::optional<Settings>& saved) const {
    const std::string below = std::exchange(settings.preset, "");
    parse(layer, commands);
    if (settings.preset.empty()) {
      settings.preset = below;
    } else {
      settings = saved ? *saved : preset_(settings.preset);
      parse(layer, commands);
    }
  }

  // The files that the line names, and the line. Each entry of a file is tried alone, so that what
  // is wrong with it is said with its place.
  std::vector<Words> layers_of(const Words& words, Commands& commands) const {
    std::vector<Words> layers;
    const std::string train = names_.known.front();
    for (const std::string& file : commands.train.run.config) {
      CommandLine line(names_);
      add_(line, commands);
      Words layer = {train};
      for (const ConfigEntry& entry : read_config(file, line.command(train))) {
        Words alone = entry.words;
        alone.insert(alone.begin(), train);
        try {
          Commands tried;
          lay(alone, tried, tried.train.settings, {});
          check(tried.train.settings);
          check(tried.train.run);
        } catch (const Error& error) {
          fail("{}: {}", entry.place, error.what());
        }
        layer.insert(layer.end(), entry.words.begin(), entry.words.end());
      }
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
