// Commands and options that apps of classifiers share: vision and lra.
#pragma once

#include <string>
#include <vector>

#include "apps/command_line/command_line.h"

namespace weft {

struct ClassifierEvalCommand {
  std::string checkpoint;
  std::string data;  // empty: the model's training data
  std::string split = "test";
  std::string device = "cpu";
  bool json = false;
};

// What --preset chooses from.
struct Presets {
  std::string help;
  std::vector<std::string> names;
};

template <class Settings>
void add_classifier_settings(const Options& app, Settings& settings, const Presets& presets) {
  add_settings(app, settings, presets.help, presets.names);
  app.when_read(add_optimizer_shorthands(app, settings));
}

template <class Settings>
void add_train(const Options& app, TrainCommand<Settings>& train, const Presets& presets) {
  add_classifier_settings(app, train.settings, presets);
  add_run_options(app, train.run);
}

template <class Settings>
void add_info(const Options& app, InfoCommand<Settings>& info, const Presets& presets) {
  add_classifier_settings(app, info.settings, presets);
  add_checkpoint_instead(app, info.checkpoint);
  app.add_flag("--json", info.json, "print one JSON object");
}

// `things`: what the data are.
inline void add_eval(const Options& app, ClassifierEvalCommand& eval, const std::string& things) {
  app.add_option("--checkpoint", eval.checkpoint, checkpoint_help).required();
  app.add_option("--data", eval.data, things + "; default: the model's training data");
  app.add_option("--split", eval.split, "train, validation or test").show_default();
  app.add_option("--device", eval.device, "cpu, cuda or cuda:N").show_default();
  app.add_flag("--json", eval.json, "print one JSON object");
}

}  // namespace weft
