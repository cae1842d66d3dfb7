// All that defines a model of words and its training, each setting named once: the name is the
// option on the command line and the key in a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "apps/language/model.h"

namespace weft::wordlm {

// The defaults fit the built-in corpus: about a minute on one core.
struct Settings : TrainingSettings {
  std::string preset;  // whose values were taken first; empty: none

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
    "builtin, a folder with wiki.train.tokens and its like or train.txt, valid.txt and test.txt, "
    "or a file of lines");
  f("pieces", s.pieces, any,
    "bpe or bpe:merges=N: of bytes, learnt from the text; paper: the agglomerative paper's, in "
    "lower case; or a SentencePiece model");
  each_network_setting(s.model, f);
  each_training_setting(s, f);
}

std::vector<std::string> presets();  // their names, those of plugins too that are loaded by now
// The settings of a preset; throws, with the names that exist, where there is none of this name.
Settings preset(const std::string& name);

// Throws, naming the setting, where a value is out of its limits or no word that is known.
void check(const Settings& settings);

}  // namespace weft::wordlm
