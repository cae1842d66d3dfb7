// `export`: the weights of a trained model in files that other programs read.
//
//     --format safetensors   one file: the parameters by their names, the configuration in the
//                            metadata. It is a checkpoint again, without what a training needs.
//     --format npy           a folder: NAME.npy for each parameter, and metadata.json
//
// The metadata's `architecture`, a JSON object, says what else the parameters are used with: all
// sizes, the attention with every option, activations, the epsilon of the norms.
// bench/peers/torch_export.py builds the model from it.
//
// `info` lists the names. With --example there are three tensors more, example.input,
// example.logits and example.logits_f64: what goes in, and what the model makes of it without
// dropout, in f32 as it runs and in f64, where roundings hide nothing. Who loads the weights
// elsewhere can see by them that it is the same model.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/command_line/json.h"
#include "nn/module.h"

namespace weft {

class Options;

struct ExportCommand {
  std::string checkpoint, out;
  std::string format = "safetensors";
  bool example = false;
};
void add_export(const Options& app, ExportCommand& command);

struct Example {
  Tensor input, logits, logits_f64;
};
// Gives a model of f64 these tensors of f32, its own by name.
void load_widened(const std::vector<NamedTensor>& wide, const std::vector<NamedTensor>& own);
// Returns the exit status. Throws where the file or the folder is there already; `example` is
// called where one is wanted.
int export_model(const ExportCommand& command, const std::vector<NamedTensor>& tensors,
                 const std::map<std::string, std::string>& metadata, const Json& architecture,
                 const std::function<Example()>& example);

}  // namespace weft
