// A sequence classifier and its settings: new, or read from a checkpoint.
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

// The data of these settings.
SequenceTask load_task(const Settings& settings);

// Writes them for other programs, or as pictures to look at.
void write_data(const std::string& task, const SequenceTask& data, const std::string& folder);

// The task determines the sizes that are no settings.
Model new_model(Settings settings);

// The metadata of an lra checkpoint, without what the training loop adds.
std::map<std::string, std::string> metadata_of(const Model& model);

// Reads a checkpoint: a file, or the best model of a run's folder. The file is not trusted: the
// sizes in its configuration are checked against its tensors before anything is allocated.
Model read_model(const std::string& path);

}  // namespace weft::lra
