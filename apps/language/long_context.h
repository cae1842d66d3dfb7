// Presets for long contexts: one model with long windows, for each mechanism that a language model
// can use. Options give a query about 128 keys or about 64 features, so that mechanisms are
// compared at similar cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/command_line/settings.h"
#include "nn/universal_transformer.h"

namespace weft {

// "text8-long" with full attention, and "text8-long-linear" and so on: one for every registered
// mechanism that has a strictly causal form and is not a wrapper. And "text8-memory-transformer-xl"
// and so on, for mechanisms that accept keys before their queries: windows of a quarter of the
// length, with a memory of as many positions.
std::vector<std::string> long_presets(const std::string& dataset);
bool is_long_preset(const std::string& name);

// The network of such a preset: four pre-norm layers of width 128 with four heads of width 32, each
// after a causal convolution, with adaptive computation time and without dropout. The app sets the
// vocabulary.
UniversalTransformerConfig long_network(const std::string& preset, i64 length);
// Sets the training of such a preset: Adam, and steps of 2 · `length` positions.
void train_long(TrainingSettings& settings, const UniversalTransformerConfig& network, i64 length);

}  // namespace weft
