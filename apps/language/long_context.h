// Presets in which long context pays: one model of long windows, with each mechanism that a language
// model may have. Options are such that a query sees about 128 keys or has about 64 features, so that
// mechanisms are compared at about the same cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/command_line/settings.h"
#include "nn/universal_transformer.h"

namespace weft {

// "text8-long", whose attention is full, and "text8-long-linear" and its like: one for every
// mechanism by now that has a strictly causal form and stands before no other one. And
// "text8-memory-transformer-xl" and its like, for those that take keys before their queries:
// windows of a quarter of the length, behind a memory of as many positions.
std::vector<std::string> long_presets(const std::string& dataset);
bool is_long_preset(const std::string& name);

// The network of such a preset: four layers of width 128 with four heads of 32, normalised before
// each part, behind a causal convolution, with adaptive computation time and without dropout. The
// vocabulary is the app's.
UniversalTransformerConfig long_network(const std::string& preset, i64 length);
// Adam, two windows of `length` a step, or as many positions of the network's own.
void train_long(TrainingSettings& settings, const UniversalTransformerConfig& network, i64 length);

}  // namespace weft
