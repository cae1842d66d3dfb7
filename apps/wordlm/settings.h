// All settings of a word-level model and its training. Each is named once: its name is the
// command-line option and the key in a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "apps/language/model.h"

namespace weft::wordlm {

// The defaults suit the built-in corpus: about a minute of training on one core.
struct Settings : TrainingSettings {
  std::string preset;  // the preset that the other settings modify; empty: none

  std::string data = "builtin";
  std::string pieces = "bpe";

  UniversalTransformerConfig model = small_network();

  Settings();
};

// Calls f(name, value, limits, help) for every setting but the preset.
template <class SomeSettings, class F>
void each_setting(SomeSettings& s, const F& f) {
  constexpr Limits any{};
  f("data", s.data, any,
    "builtin, a folder with wiki.{train,valid,test}.tokens or {train,valid,test}.txt, or a text "
    "file");
  f("pieces", s.pieces, any,
    "bpe or bpe:merges=N: byte pairs learnt from the text; paper: the agglomerative paper's, in "
    "lower case; or a SentencePiece model");
  each_network_setting(s.model, f);
  each_training_setting(s, f);
}

std::vector<std::string> presets();  // all names, including those of plugins loaded so far
// The settings of a preset; throws, with the known names, for an unknown one.
Settings preset(const std::string& name);

// Throws, naming the setting, for a number outside its limits or an unknown word.
void check(const Settings& settings);

}  // namespace weft::wordlm
