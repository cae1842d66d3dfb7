// A word-level model with its settings and word pieces: new, or read from a checkpoint.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "apps/data/word_pieces.h"
#include "apps/wordlm/settings.h"
#include "nn/checkpoint.h"

namespace weft::wordlm {

struct Model {
  Settings settings;
  std::shared_ptr<const WordPieces> pieces;  // null for a new model without text
  std::unique_ptr<UniversalTransformer> network;
  std::map<std::string, std::string> metadata;  // of the checkpoint; empty for a new model

  std::vector<NamedParameter> parameters() const { return weft::parameters(*network); }
  std::vector<NamedTensor> tensors() const { return weft::tensors(*network); }
};

// A new model for these pieces; if null, for the settings' vocabulary size.
Model new_model(Settings settings, std::shared_ptr<const WordPieces> pieces);

// The metadata of a wordlm checkpoint, with its pieces, without what the training loop adds.
std::map<std::string, std::string> metadata_of(const Model& model);

// Reads a checkpoint: a file, or the best model of a run's folder. The file is not trusted: the
// sizes in its configuration are checked against its tensors before anything is allocated.
// `attention` replaces the model's own mechanism; throws, with the reason, if the weights do not
// fit it.
Model read_model(const std::string& path, const std::string& attention = {});

}  // namespace weft::wordlm
