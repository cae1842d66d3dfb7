// A model of pictures with the settings that made it: built anew, or read from a checkpoint.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "apps/vision/settings.h"
#include "nn/checkpoint.h"

namespace weft::vision {

struct Model {
  Settings settings;                 // the data set is resolved
  std::vector<std::string> classes;  // their names
  std::unique_ptr<VisionTransformer> network;
  std::map<std::string, std::string> metadata;  // of the checkpoint; empty for a new model

  std::vector<NamedParameter> parameters() const { return weft::parameters(*network); }
  std::vector<NamedTensor> tensors() const { return weft::tensors(*network); }
};

// For the pictures of settings.dataset ("auto" counts as builtin here); `classes` are their names,
// empty: the set's own.
Model new_model(Settings settings, std::vector<std::string> classes = {});

// What a checkpoint of vision says about itself, besides what the training loop adds.
std::map<std::string, std::string> metadata_of(const Model& model);

// `path` is a run's folder (its best model is taken) or a file. The file is not trusted: sizes that
// its configuration claims are compared with what it holds before anything is built. Weights that
// are not finite are loaded, with a warning on stderr.
Model read_model(const std::string& path);

}  // namespace weft::vision
