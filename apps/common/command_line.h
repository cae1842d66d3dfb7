// The command line that all apps have: `app command --option value …`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>

#include "apps/common/configuration.h"

namespace weft {

inline constexpr const char* settings_group = "Model and training";
inline constexpr const char* checkpoint_help = "a run's folder or a .safetensors file";

void add_run_options(CLI::App& app, RunOptions& run);
// The line, for a shell, that goes on with the run that `words` began: the same words and --resume.
std::string resume_command(const std::vector<std::string>& words);

class CommandLine {
 public:
  // `known`: the commands; the first one is meant where none is named.
  CommandLine(std::string name, std::string description, std::vector<std::string> known);

  CLI::App& add(const std::string& command, const std::string& help);
  // The command. Exits after --help and --version; throws for a command or an option that there is
  // not, with the nearest that exist.
  std::string parse(std::vector<std::string> words);

 private:
  CLI::App app_;
  std::string name_;
  std::vector<std::string> known_;
  int threads_ = 0;  // 0: as many as there are cores
};

// The configuration of the run that `run` resumes: that of a last complete checkpoint.
std::string configuration_to_resume(const RunOptions& run);
// Throws, naming the option, where `wanted` is another training than `saved`; both are settings as
// JSON. Only how long it lasts may change, where the data lie, and with several seeds the seed.
void check_resumed(const nlohmann::ordered_json& wanted, const nlohmann::ordered_json& saved,
                   const RunOptions& run);

// Reads the line by parse(words, commands), which returns the command. The values of a preset
// (preset(name)), or of the run to resume, stand below what the line says: where it names one it is
// read again on top of them.
template <class Commands, class Parse, class PresetOf>
std::string read_commands(const std::vector<std::string>& words, Commands& commands,
                          const Parse& parse, const PresetOf& preset) {
  const std::string command = parse(words, commands);
  auto& settings = command == "info" ? commands.info.settings : commands.train.settings;
  RunOptions& run = commands.train.run;
  if (run.resume) {
    check(run);
    const std::string saved = configuration_to_resume(run);
    settings = settings_from_json<std::decay_t<decltype(settings)>>(saved, run.out);
    const nlohmann::ordered_json before = to_json(settings);
    parse(words, commands);
    check_resumed(to_json(settings), before, run);
  } else if (!settings.preset.empty()) {
    settings = preset(settings.preset);
    parse(words, commands);
  }
  run.resume_command = resume_command(words);
  return command;
}

// An option for every setting, and --preset.
template <class Settings>
void add_settings(CLI::App& app, Settings& settings, const std::string& preset_help) {
  app.add_option("--preset", settings.preset, preset_help)->group(settings_group);
  each_setting(settings,
               [&](const std::string& name, auto& value, const Limits&, const char* help) {
                 const std::string option = "--" + name;
                 CLI::Option* made = nullptr;
                 if constexpr (std::is_same_v<std::decay_t<decltype(value)>, bool>) {
                   made = app.add_flag(option + ",!--no-" + name, value, help);
                 } else {
                   made = app.add_option(option, value, help)->capture_default_str();
                 }
                 // The parser itself would wrap a negative number round.
                 if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::uint64_t>) {
                   made->check(CLI::NonNegativeNumber);
                 }
                 made->group(settings_group);
               });
}

// --checkpoint in the place of the settings, which it excludes.
void add_checkpoint_instead(CLI::App& app, std::string& checkpoint);

// Another optimizer has another usual learning rate: to be called when the line was read.
void follow_optimizer(const CLI::App& app, TrainingSettings& settings);

// The exit status of run(words): Error is one line on stderr, and 2.
int run_app(const char* name, int (*run)(const std::vector<std::string>& words), int argc,
            char** argv);

}  // namespace weft
