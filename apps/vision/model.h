// A picture classifier and its settings: new, or read from a checkpoint.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "apps/vision/settings.h"
#include "nn/checkpoint.h"

namespace weft::vision {

struct Model {
  Settings settings;                 // the data set is not "auto"
  std::vector<std::string> classes;  // class names
  std::unique_ptr<VisionTransformer> network;
  std::map<std::string, std::string> metadata;  // of the checkpoint; empty for a new model

  std::vector<NamedParameter> parameters() const { return weft::parameters(*network); }
  std::vector<NamedTensor> tensors() const { return weft::tensors(*network); }
};

// A new model for the pictures of settings.dataset ("auto" means builtin here). `classes` are the
// class names; empty: those of the data set.
Model new_model(Settings settings, std::vector<std::string> classes = {});

// The metadata of a vision checkpoint, without what the training loop adds.
std::map<std::string, std::string> metadata_of(const Model& model);

// Reads a checkpoint: a file, or the best model of a run's folder. The file is not trusted: the
// sizes in its configuration are checked against its tensors before anything is allocated. Weights
// that are not finite are loaded, with a warning on stderr.
Model read_model(const std::string& path);

}  // namespace weft::vision
