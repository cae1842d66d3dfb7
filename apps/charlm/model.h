// A model with the settings that made it: built anew, or read from a checkpoint.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "apps/charlm/settings.h"
#include "nn/checkpoint.h"

namespace weft::charlm {

struct Model {
  Settings settings;  // the vocabulary's name and the split are resolved: neither is "auto"
  Vocabulary vocabulary;
  std::unique_ptr<UniversalTransformer> network;
  std::map<std::string, std::string> metadata;  // of the checkpoint; empty for a new model

  std::vector<NamedParameter> parameters() const { return weft::parameters(*network); }
  std::vector<NamedTensor> tensors() const { return weft::tensors(*network); }
};

// For this text.
Model new_model(Settings settings, const Text& text);

// What a checkpoint of charlm says about itself, its characters included, besides what the training
// loop adds.
std::map<std::string, std::string> metadata_of(const Model& model);

// `path` is a run's folder (its best model is taken) or a file. The file is not trusted: sizes
// that its configuration claims are compared with what it holds before anything is built. Weights
// that are not finite are loaded, with a warning on stderr. With another `attention` than its own
// the weights serve that one; throws, saying why, where they do not fit.
Model read_model(const std::string& path, const std::string& attention = {});

}  // namespace weft::charlm
