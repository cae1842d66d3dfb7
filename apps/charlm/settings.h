// All settings of a model and its training. Each is named once: its name is the command-line option
// and the key in a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/data/text.h"
#include "apps/language/model.h"

namespace weft::charlm {

// The defaults suit the built-in corpus: about a minute of training on one core.
struct Settings : TrainingSettings {
  std::string preset;  // the preset that the other settings modify; empty: none

  std::string data = "builtin";
  std::string vocabulary = "auto";
  std::string split = "auto";

  UniversalTransformerConfig model = small_network();

  i64 epoch_steps = 400;
  i64 validation_batches = 24;
  i64 test_batches = 244;

  i64 total_steps() const { return TrainingSettings::total_steps(epoch_steps); }
};

// Calls f(name, value, limits, help) for every setting but the preset.
template <class SomeSettings, class F>
void each_setting(SomeSettings& s, const F& f) {
  constexpr Limits any{}, count{1, 1e9};
  f("data", s.data, any, "builtin, or a file of text");
  f("vocabulary", s.vocabulary, any,
    "auto, text8 (a to z and space), characters (those of the text) or bytes");
  f("split", s.split, any,
    "percent of the text for training/validation/test, by position; auto: 90/5/5, and 60/30/10 of "
    "text8 and the built-in text");
  each_network_setting(s.model, f);
  each_training_setting(s, f, "largest number of rounds of --epoch-steps steps");
  f("epoch-steps", s.epoch_steps, Limits{1, 1e6},
    "steps per round, which ends with a validation (the paper's epoch; not a pass over the text)");
  f("validation-batches", s.validation_batches, count, "batches of random windows per validation");
  f("test-batches", s.test_batches, count, "batches of random windows in the test");
}

std::vector<std::string> presets();  // all names, including those of plugins loaded so far
// The settings of a preset; throws, with the known names, for an unknown one.
Settings preset(const std::string& name);

// Throws, naming the setting, for a number outside its limits or an unknown word.
void check(const Settings& settings);
}  // namespace weft::charlm
