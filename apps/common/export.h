// `export`: the weights of a trained model in files that other programs read.
//
//     --format safetensors   one file: the parameters by their names, the configuration in the
//                            metadata. It is a checkpoint again, without what a training needs.
//     --format npy           a folder: NAME.npy for each parameter, and metadata.json
//
// `info` lists the names. With --example there are two tensors more, example.input and
// example.logits: what goes in, and what the model makes of it without dropout. Who loads the
// weights elsewhere can see by them that it is the same model.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nn/module.h"

namespace CLI {
class App;
}

namespace weft {

struct ExportCommand {
  std::string checkpoint, out;
  std::string format = "safetensors";
  bool example = false;
};
void add_export(CLI::App& app, ExportCommand& command);

struct Example {
  Tensor input, logits;
};
// Returns the exit status. Throws where the file or the folder is there already; `example` is
// called where one is wanted.
int export_model(const ExportCommand& command, const std::vector<NamedParameter>& parameters,
                 const std::map<std::string, std::string>& metadata,
                 const std::function<Example()>& example);

}  // namespace weft
