// Command-line options of the language models' commands.
#pragma once

#include "apps/command_line/command_line.h"
#include "apps/language/commands.h"

namespace weft {

// Adds --dropout, which sets every dropout rate that is not given by its own option, and the
// optimizer's shorthands. Uses the app's when_read() callback.
void add_shorthands(const Options& app, UniversalTransformerConfig& network,
                    TrainingSettings& training);

template <class Settings>
void add_language_settings(const Options& app, Settings& settings,
                           const std::vector<std::string>& presets) {
  add_settings(app, settings,
               "a model of the agglomerative-attention paper or one with long windows; other "
               "options modify it",
               presets);
  add_shorthands(app, settings.model, settings);
}

void add_allow_leaky(const Options& app, bool& allow_leaky);

template <class Settings>
void add_train(const Options& app, LanguageTrainCommand<Settings>& train,
               const std::vector<std::string>& presets) {
  add_language_settings(app, train.settings, presets);
  add_allow_leaky(app, train.allow_leaky);
  add_run_options(app, train.run);
}

void add_eval(const Options& app, LanguageEvalCommand& eval);
void add_sample(const Options& app, SampleCommand& sample);

template <class Settings>
void add_info(const Options& app, InfoCommand<Settings>& info,
              const std::vector<std::string>& presets) {
  add_language_settings(app, info.settings, presets);
  add_checkpoint_instead(app, info.checkpoint);
  app.add_flag("--json", info.json, "print one JSON object");
}

}  // namespace weft
