// All settings of a sequence classifier and its training. Each is named once: its name is the
// command-line option and the key in a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "apps/command_line/settings.h"
#include "nn/sequence_classifier.h"

namespace weft::lra {

// What a task determines: sizes of a model, the recipe of its presets, its drawn data.
struct TaskFacts {
  std::string name;
  i64 symbols, classes, length, together = 1;  // of a model
  i64 batch, steps, warmup, round_steps;
  std::string data;        // of the presets
  std::string released;    // what the folder of --data holds
  i64 examples, held_out;  // published numbers of sequences of "builtin"; 0: there is no such data
};
const std::vector<TaskFacts>& all_tasks();
const TaskFacts& facts_of(const std::string& task);  // throws, with the known names

// The defaults are those of the small models in the Nyströmformer paper.
struct Settings : TrainingSettings {
  std::string preset;  // the preset that the other settings modify; empty: none

  std::string task = "listops";
  std::string data = "builtin";
  std::uint64_t data_seed = 1;
  i64 examples = 0;  // 0: the published number, as of held_out
  i64 held_out = 0;

  SequenceClassifierConfig model;  // the task determines its symbols, classes and length

  i64 round_steps = 500;

  Settings();
};

template <class SomeConfig, class F>
void each_network_setting(SomeConfig& m, const F& f) {
  constexpr Limits any{}, rate{0, 1 - 1e-9};
  f("attention", m.attention, any, "a mechanism, as name:option=value,option=value");
  f("width", m.width, Limits{1, 16384}, "width of the model");
  f("layers", m.layers, Limits{1, 1024}, "number of layers");
  f("heads", m.heads, Limits{1, 16384}, "attention heads");
  f("hidden", m.hidden, Limits{1, 65536}, "width inside the feed-forward layers");
  f("attention-dropout", m.attention_dropout, rate, "dropout rate of the attention weights");
  f("dropout", m.dropout, rate, "dropout rate everywhere else");
  precision_setting(m.precision, f);
}

// Calls f(name, value, limits, help) for every setting but the preset.
template <class SomeSettings, class F>
void each_setting(SomeSettings& s, const F& f) {
  constexpr Limits any{};
  f("task", s.task, any, "listops, image, pathfinder, text or retrieval");
  f("data", s.data, any, "builtin, or the folder of the task's released files");
  f("data-seed", s.data_seed, any, "seed of the built-in data");
  f("examples", s.examples, Limits{0, 1e7},
    "number of training sequences of the built-in data; 0: as published");
  f("held-out", s.held_out, Limits{0, 1e6},
    "number of validation sequences of the built-in data, and of test sequences; 0: as published");
  each_network_setting(s.model, f);
  each_training_setting(s, f);
  f("round-steps", s.round_steps, Limits{1, 1e9}, "steps between validations");
}

const std::vector<std::string>& presets();  // all names
// The settings of a preset; throws, with the known names, for an unknown one.
Settings preset(const std::string& name);

// Throws, naming the setting, for a number outside its limits or an unknown word.
void check(const Settings& settings);

}  // namespace weft::lra
