// All settings of a picture classifier and its training. Each is named once: its name is the
// command-line option and the key in a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "apps/command_line/settings.h"
#include "nn/vision_transformer.h"

namespace weft::vision {

// The defaults suit the built-in pictures: about a minute of training on one core.
struct Settings : TrainingSettings {
  std::string preset;  // the preset that the other settings modify; empty: none

  std::string data = "builtin";
  std::string dataset = "auto";

  VisionTransformerConfig model;  // the data set determines its size, channels and classes

  bool augment = true;
  bool rate_by_epoch = false;
  bool test_epochs = false;
  i64 validation = 1000;

  Settings();
};

template <class SomeConfig, class F>
void each_network_setting(SomeConfig& m, const F& f) {
  constexpr Limits any{}, rate{0, 1 - 1e-9};
  f("attention", m.attention, any, "a mechanism, as name:option=value,option=value");
  f("patch", m.patch, Limits{1, 32}, "pixels of a patch's side");
  f("width", m.width, Limits{1, 16384}, "width of the model");
  f("layers", m.layers, Limits{1, 1024}, "number of layers");
  f("heads", m.heads, Limits{1, 16384}, "attention heads");
  f("hidden", m.hidden, Limits{1, 65536}, "width inside the feed-forward layers");
  f("value-width", m.value_width, Limits{0, 65536},
    "width of all heads' values; 0: the model's width");
  f("attention-dropout", m.attention_dropout, rate, "dropout rate of the attention weights");
  f("dropout", m.dropout, rate, "dropout rate everywhere else");
  precision_setting(m.precision, f);
}

// Calls f(name, value, limits, help) for every setting but the preset.
template <class SomeSettings, class F>
void each_setting(SomeSettings& s, const F& f) {
  constexpr Limits any{};
  f("data", s.data, any, "builtin, or the folder of CIFAR-10 or CIFAR-100, binary version");
  f("dataset", s.dataset, any, "auto, cifar-10, cifar-100, cifar-100-coarse or builtin");
  each_network_setting(s.model, f);
  f("augment", s.augment, any, "crop and mirror training pictures at random");
  each_training_setting(s, f);
  f("rate-by-epoch", s.rate_by_epoch, any, "change the learning rate only between epochs");
  f("validation", s.validation, Limits{1, 1e9}, "number of training pictures to hold out");
  f("test-epochs", s.test_epochs, any, "also test after every epoch, as the paper does");
}

const std::vector<std::string>& presets();  // all names
// The settings of a preset; throws, with the known names, for an unknown one.
Settings preset(const std::string& name);

// Throws, naming the setting, for a number outside its limits or an unknown word.
void check(const Settings& settings);

}  // namespace weft::vision
