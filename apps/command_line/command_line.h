// The command line that all apps have: `app command --option value …`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/core.h>

#include "apps/command_line/config_file.h"
#include "apps/command_line/configuration.h"
#include "apps/command_line/options.h"
#include "runtime/listed.h"

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
  ~CommandLine();

  Options add(const std::string& command, const std::string& help);
  Options command(const std::string& name) const;
  // Named below the commands in --help of the program; to be called after the last add().
  void show_presets(const std::vector<std::string>& presets);
  // The command. Exits after --help and --version; throws for a command or an option that there is
  // not, with the nearest that exist.
  std::string parse(std::vector<std::string> words);
  int threads() const { return threads_; }  // 0: as many as there are cores

 private:
  std::unique_ptr<CLI::App> app_;
  Names names_;
  int threads_ = 0;
};

void add_run_options(const Options& app, RunOptions& run);

// An option for every setting, and --preset, whose help names the presets.
template <class Settings>
void add_settings(const Options& app, Settings& settings, const std::string& preset_help,
                  const std::vector<std::string>& presets) {
  app.add_option("--preset", settings.preset,
                 fmt::format("{}: {}", preset_help, listed(presets)))
      .group(settings_group);
  each_setting(settings,
               [&](const std::string& name, auto& value, const Limits&, const char* help) {
                 add_value(app, name, value, help).group(settings_group);
               });
}

// --checkpoint in the place of the settings, which it excludes.
void add_checkpoint_instead(const Options& app, std::string& checkpoint);

// --weight-decay, which is an option of the optimizer said otherwise. What is returned is to be
// called when the line was read: it also gives another optimizer its own usual learning rate.
std::function<void()> add_optimizer_shorthands(const Options& app, TrainingSettings& settings);

// The exit status of run(words): Error is one line on stderr, and 2. Of several ranks the first
// alone prints, and an error on one ends all.
int run_app(const char* name, int (*run)(const std::vector<std::string>& words), int argc,
            char** argv);

}  // namespace weft
