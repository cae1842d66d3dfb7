// The command line of apps that model language: an option for all that their commands are told.
#pragma once

#include "apps/common/command_line.h"
#include "apps/common/language_commands.h"

namespace weft {

// --dropout stands for all three rates that are not given themselves. Reads the line's other
// shorthands too: the app's final callback is taken.
void add_shorthands(CLI::App& app, UniversalTransformerConfig& network, TrainingSettings& training);

template <class Settings>
void add_language_settings(CLI::App& app, Settings& settings,
                           const std::vector<std::string>& presets) {
  add_settings(app, settings,
               "a model of the agglomerative-attention paper, which other options change", presets);
  add_shorthands(app, settings.model, settings);
}

void add_allow_leaky(CLI::App& app, bool& allow_leaky);

template <class Settings>
void add_train(CLI::App& app, LanguageTrainCommand<Settings>& train,
               const std::vector<std::string>& presets) {
  add_language_settings(app, train.settings, presets);
  add_allow_leaky(app, train.allow_leaky);
  add_run_options(app, train.run);
}

void add_eval(CLI::App& app, LanguageEvalCommand& eval);
void add_sample(CLI::App& app, SampleCommand& sample);

template <class Settings>
void add_info(CLI::App& app, InfoCommand<Settings>& info,
              const std::vector<std::string>& presets) {
  add_language_settings(app, info.settings, presets);
  add_checkpoint_instead(app, info.checkpoint);
  app.add_flag("--json", info.json, "print one JSON object");
}

}  // namespace weft
