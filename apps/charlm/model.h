// A model and its settings: new, or read from a checkpoint.
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

// A new model with the vocabulary of this text.
Model new_model(Settings settings, const Text& text);

// The metadata of a charlm checkpoint, with its characters, without what the training loop adds.
std::map<std::string, std::string> metadata_of(const Model& model);

// Reads a checkpoint: a file, or the best model of a run's folder. The file is not trusted: the
// sizes in its configuration are checked against its tensors before anything is allocated. Weights
// that are not finite are loaded, with a warning on stderr. `attention` replaces the model's own
// mechanism; throws, with the reason, if the weights do not fit it.
Model read_model(const std::string& path, const std::string& attention = {});

}  // namespace weft::charlm
