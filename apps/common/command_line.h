// The command line that all apps have: `app command --option value …`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "apps/common/config_file.h"
#include "apps/common/configuration.h"

namespace weft {

inline constexpr const char* settings_group = "Model and training";
inline constexpr const char* checkpoint_help = "a run's folder or a .safetensors file";

// The line, for a shell, that goes on with the run that `words` began: the same words and --resume.
std::string resume_command(const std::vector<std::string>& words);

class CommandLine {
 public:
  // `known`: the commands; the first one is meant where none is named.
  struct Names {
    std::string app, description;
    std::vector<std::string> known;
  };
  explicit CommandLine(const Names& names);

  CLI::App& add(const std::string& command, const std::string& help);
  const CLI::App& command(const std::string& name) const { return *app_.get_subcommand(name); }
  // The command. Exits after --help and --version; throws for a command or an option that there is
  // not, with the nearest that exist.
  std::string parse(std::vector<std::string> words);
  int threads() const { return threads_; }  // 0: as many as there are cores

 private:
  CLI::App app_;
  Names names_;
  int threads_ = 0;
};

// A check: what is wrong where a word is no decimal integer of this type; the parser itself would
// wrap a negative one round, read 010 as 8, and stop at the largest.
template <class T>
std::string plain_integer(const std::string& text);

// Adds the option --name: a flag, with --no-name, for a bool.
template <class T>
CLI::Option* add_value(CLI::App& app, const std::string& name, T& value, const char* help) {
  const std::string option = "--" + name;
  if constexpr (std::is_same_v<T, bool>) {
    return app.add_flag(option + ",!--no-" + name, value, help);
  } else if constexpr (std::is_same_v<T, std::vector<std::uint64_t>>) {
    return app.add_option(option, value, help)->delimiter(',')->check(plain_integer<std::uint64_t>);
  } else {
    CLI::Option* const made = app.add_option(option, value, help)->capture_default_str();
    if constexpr (std::is_integral_v<T>) made->check(plain_integer<T>);
    return made;
  }
}

void add_run_options(CLI::App& app, RunOptions& run);

// An option for every setting, and --preset, whose help names the presets.
template <class Settings>
void add_settings(CLI::App& app, Settings& settings, const std::string& preset_help,
                  const std::vector<std::string>& presets) {
  app.add_option("--preset", settings.preset,
                 fmt::format("{}: {}", preset_help, fmt::join(presets, ", ")))
      ->group(settings_group);
  each_setting(settings,
               [&](const std::string& name, auto& value, const Limits&, const char* help) {
                 add_value(app, name, value, help)->group(settings_group);
               });
}

// --checkpoint in the place of the settings, which it excludes.
void add_checkpoint_instead(CLI::App& app, std::string& checkpoint);

// --weight-decay, which is an option of the optimizer said otherwise. What is returned is to be
// called when the line was read: it also gives another optimizer its own usual learning rate.
std::function<void()> add_optimizer_shorthands(CLI::App& app, TrainingSettings& settings);

// The exit status of run(words): Error is one line on stderr, and 2.
int run_app(const char* name, int (*run)(const std::vector<std::string>& words), int argc,
            char** argv);

}  // namespace weft
