// `export`: writes the weights of a trained model in formats that other programs read.
//
//     --format safetensors   one file: the parameters by name, the configuration in the metadata.
//                            It is a valid checkpoint for all commands but --resume.
//     --format npy           a folder: NAME.npy for each parameter, and metadata.json
//
// The metadata's `architecture`, a JSON object, describes the model: all sizes, the attention with
// every option, activations, the epsilon of the norms. bench/peers/torch_export.py builds the
// PyTorch model from it.
//
// `info` lists the parameters' names. --example adds three tensors, example.input, example.logits
// and example.logits_f64: an input and the model's logits for it without dropout, computed in f32
// and in f64. With them another program can check that it has rebuilt the same model.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/command_line/json.h"
#include "nn/checkpoint.h"
#include "nn/context.h"
#include "nn/module.h"

namespace weft {

class Options;

struct ExportCommand {
  std::string checkpoint, out;
  std::string format = "safetensors";
  bool example = false;
};
void add_export(const Options& app, ExportCommand& command);

// Logits of a model with the same weights that computes in f32, and of one in f64, whatever
// precision the training has.
struct Example {
  Tensor input, logits, logits_f64;
};
// `call` returns the logits of `input` from a network with these weights, which computes in the
// type that it is given.
template <class Network, class Config, class Call>
Example example_of(Config config, const std::vector<NamedTensor>& weights, const Tensor& input,
                   const Call& call) {
  config.precision = "f32";  // what is stored in bf16 would be rounded
  const auto logits = [&](DType dtype) {
    Network network(config, 0, dtype);
    const std::vector<NamedTensor> places = tensors(network);
    load_tensors(places, in_types_of(places, tensors_of(weights)), "export");
    Context context = Context::evaluation();
    return call(network, context, dtype);
  };
  return {input, logits(DType::f32), logits(DType::f64)};
}
// Returns the exit status. Throws if the file or folder exists already. Calls `example` for
// --example.
int export_model(const ExportCommand& command, const std::vector<NamedTensor>& tensors,
                 const std::map<std::string, std::string>& metadata, const Json& architecture,
                 const std::function<Example()>& example);

}  // namespace weft
