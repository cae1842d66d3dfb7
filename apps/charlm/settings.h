// All that defines a model and its training, each setting named once: the name is the option on
// the command line and the key in a checkpoint.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "apps/common/text.h"
#include "nn/universal_transformer.h"

namespace weft {

// The defaults fit the built-in corpus: about a minute on one core.
struct Settings {
  std::string preset;  // whose values were taken first; empty: none

  std::string data = "builtin";
  std::string vocabulary = "auto";
  std::string split = "60/30/10";

  UniversalTransformerConfig model;

  std::int64_t batch = 32;
  std::string optimizer = "adamw";
  double lr = 0.01;
  std::string schedule = "cosine";
  std::int64_t warmup = 100;
  double clip = 1;  // 0: none
  std::int64_t epochs = 5;
  std::int64_t epoch_steps = 400;
  std::int64_t steps = 0;  // 0: epochs · epoch_steps
  std::int64_t patience = 0;  // 0: none
  std::int64_t validation_batches = 24;
  std::int64_t test_batches = 244;
  std::uint64_t seed = 1;

  Settings();
  std::int64_t total_steps() const { return steps > 0 ? steps : epochs * epoch_steps; }
};

// What values a number may have.
struct Limits {
  double least = 0, most = std::numeric_limits<double>::infinity();
  bool open = false;  // both ends are outside of it
};

// Calls f(name, value, limits, help) for every setting but the preset.
template <class SomeSettings, class F>
void each_setting(SomeSettings& s, const F& f) {
  constexpr Limits any{}, positive{0, 1e6, true}, rate{0, 1 - 1e-9}, count{1, 1e9};
  constexpr Limits or_none{0, 1e9};
  f("data", s.data, any, "builtin, or a file of text");
  f("vocabulary", s.vocabulary, any, "auto, text8 (a to z and space) or bytes");
  f("split", s.split, any, "percent of the text for training/validation/test, by position");
  f("attention", s.model.attention, any, "a mechanism, as name:option=value,option=value");
  f("encoding", s.model.encoding, any, "how order is known: position or conv");
  f("width", s.model.width, Limits{1, 16384}, "of the model");
  f("depth", s.model.depth, Limits{1, 1024}, "how often the block is applied");
  f("heads", s.model.heads, Limits{1, 16384}, "heads, or classes, of the attention");
  f("length", s.model.length, Limits{1, 1 << 20}, "characters in a window");
  f("conv-width", s.model.conv_width, Limits{1, 1024}, "characters that the convolution sees");
  f("wiring", s.model.wiring, any, "universal or vanilla: where the block's dropout stands");
  f("shared", s.model.shared, any, "one block for all of the depth");
  f("act", s.model.act, any, "adaptive computation time");
  f("attention-dropout", s.model.attention_dropout, rate, "rate on the attention weights");
  f("residual-dropout", s.model.residual_dropout, rate, "rate in the block");
  f("output-dropout", s.model.output_dropout, rate, "rate before the output");
  f("l2", s.model.l2, Limits{0, 1e3}, "weight of the squares of embedding and output matrix");
  f("batch", s.batch, Limits{1, 65536}, "windows in a step");
  f("optimizer", s.optimizer, any, "adadelta, adam, adamw or sgd, as name:option=value");
  f("lr", s.lr, positive, "learning rate; another optimizer brings its own default");
  f("schedule", s.schedule, any, "of the learning rate: constant, cosine or linear");
  f("warmup", s.warmup, or_none, "steps over which the learning rate rises");
  f("clip", s.clip, Limits{0, 1e9}, "largest norm of the gradient; 0: none");
  f("epochs", s.epochs, Limits{1, 1e6}, "at most");
  f("epoch-steps", s.epoch_steps, Limits{1, 1e6}, "steps between two validations");
  f("steps", s.steps, or_none, "in all, instead of epochs; 0: by epochs");
  f("patience", s.patience, or_none, "epochs without a better validation loss; 0: no limit");
  f("validation-batches", s.validation_batches, count, "batches of random windows");
  f("test-batches", s.test_batches, count, "batches of random windows");
  f("seed", s.seed, any, "of the weights, the batches and the dropout");
}

struct Preset {
  std::string name, help;
};
const std::vector<Preset>& presets();
// The settings of a preset; throws, with the names that exist, where there is none of this name.
Settings preset(const std::string& name);

// Throws, naming the setting, where a value is out of its limits or no word that is known.
void check(const Settings& settings);
// Throws where the attention is not strictly causal, unless that is allowed: a prediction that the
// future reaches measures nothing.
void check_causal(const std::string& attention, bool allow_leaky);

nlohmann::ordered_json to_json(const Settings& settings);
// The settings that to_json() wrote; `text` is not trusted, and `source` begins every error.
Settings settings_from_json(const std::string& text, const std::string& source);

}  // namespace weft
