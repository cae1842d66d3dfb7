// A model of words with the settings and the pieces that made it: built anew, or read from a
// checkpoint.
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
  std::shared_ptr<const WordPieces> pieces;  // null for a model without text
  std::unique_ptr<UniversalTransformer> network;
  std::map<std::string, std::string> metadata;  // of the checkpoint; empty for a new model

  std::vector<NamedParameter> parameters() const { return weft::parameters(*network); }
  std::vector<NamedTensor> tensors() const { return weft::tensors(*network); }
};

// For text in these pieces; without them for the vocabulary of the settings.
Model new_model(Settings settings, std::shared_ptr<const WordPieces> pieces);

// What a checkpoint of wordlm says about itself, its pieces included, besides what the training
// loop adds.
std::map<std::string, std::string> metadata_of(const Model& model);

// `path` is a run's folder (its best model is taken) or a file. The file is not trusted: sizes that
// its configuration claims are compared with what it holds before anything is built. With another
// `attention` than its own the weights serve that one; throws, saying why, where they do not fit.
Model read_model(const std::string& path, const std::string& attention = {});

}  // namespace weft::wordlm
