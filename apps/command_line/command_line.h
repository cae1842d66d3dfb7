// The command line of the training apps: `app command --option value …`.
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

// The word as a shell reads it, in quotes where it wants them.
std::string shell_word(const std::string& word);
// The shell command that resumes the run started by `words`: the same words and --resume.
std::string resume_command(const std::vector<std::string>& words);

class CommandLine {
 public:
  // `known`: the commands; the first one is the default.
  struct Names {
    std::string app, description;
    std::vector<std::string> known;
  };
  explicit CommandLine(const Names& names);
  ~CommandLine();

  Options add(const std::string& command, const std::string& help);
  Options command(const std::string& name) const;
  // Lists the presets below the commands in the program's --help. Call it after the last add().
  void show_presets(const std::vector<std::string>& presets);
  // Returns the command's name. Exits after --help and --version; throws for an unknown command or
  // option, with the nearest known names.
  std::string parse(std::vector<std::string> words);
  int threads() const { return threads_; }  // 0: one per core

 private:
  std::unique_ptr<CLI::App> app_;
  Names names_;
  int threads_ = 0;
};

void add_run_options(const Options& app, RunOptions& run);

// Adds an option for every setting, and --preset, whose help lists the presets.
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

// Adds --checkpoint, which excludes the options of settings.
void add_checkpoint_instead(const Options& app, std::string& checkpoint);

// Adds --weight-decay, a shorthand for the optimizer's own option. The returned function must be
// called after parsing. It also sets the optimizer's default learning rate if the line has
// --optimizer without --lr.
std::function<void()> add_optimizer_shorthands(const Options& app, TrainingSettings& settings);

// Returns the exit status of run(words), of the words with long names. An Error is printed as one
// line on stderr and gives 2. Of several ranks only rank 0 prints to stdout, and an error on one
// rank ends all.
int run_app(const char* name, int (*run)(const std::vector<std::string>& words), int argc,
            char** argv);

}  // namespace weft
