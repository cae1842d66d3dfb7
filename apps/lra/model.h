// A classifier of sequences with the settings that made it: built anew, or read from a checkpoint.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "apps/lra/sequences.h"
#include "apps/lra/settings.h"
#include "nn/checkpoint.h"

namespace weft::lra {

struct Model {
  Settings settings;
  std::unique_ptr<SequenceClassifier> network;
  std::map<std::string, std::string> metadata;  // of the checkpoint; empty for a new model

  std::vector<NamedParameter> parameters() const { return weft::parameters(*network); }
  std::vector<NamedTensor> tensors() const { return weft::tensors(*network); }
};

// The data that the settings name.
SequenceTask load_task(const Settings& settings);

Model new_model(const Settings& settings);

// What a checkpoint of lra says about itself, besides what the training loop adds.
std::map<std::string, std::string> metadata_of(const Model& model);

// `path` is a run's folder (its best model is taken) or a file. The file is not trusted: sizes that
// its configuration claims are compared with what it holds before anything is built.
Model read_model(const std::string& path);

}  // namespace weft::lra
