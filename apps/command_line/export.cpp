#include "apps/command_line/export.h"

#include <filesystem>

#include "apps/command_line/command_line.h"
#include "nn/file.h"
#include "nn/npy.h"

namespace weft {
namespace {

void write_folder(const Checkpoint& contents, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, "{}: cannot create the folder: {}", folder, error.message());
  for (const auto& [name, tensor] : contents.tensors) {
    write_npy(tensor, folder + "/" + name + ".npy");
  }
  write_file(folder + "/metadata.json", Json(contents.metadata).text(1) + "\n");
}

}  // namespace

void add_export(const Options& app, ExportCommand& command) {
  app.add_option("--checkpoint", command.checkpoint, checkpoint_help).required();
  app.add_option("--out", command.out, "the file, or for npy the folder, to write").required();
  app.add_option("--format", command.format, "safetensors or npy").show_default();
  app.add_flag("--example", command.example,
               "also write an example input and the model's logits for it");
}

int export_model(const ExportCommand& command, const std::vector<NamedTensor>& tensors,
                 const std::map<std::string, std::string>& metadata, const Json& architecture,
                 const std::function<Example()>& example) {
  check_word("format", command.format, {"safetensors", "npy"});
  require(!std::filesystem::exists(std::filesystem::symlink_status(command.out)),
          "{}: exists already; choose another --out", command.out);
  Checkpoint contents{tensors_of(tensors), metadata};
  contents.metadata["architecture"] = architecture.text();
  if (command.example) {
    const auto [input, logits, logits_f64] = example();
    contents.tensors["example.input"] = input;
    contents.tensors["example.logits"] = logits;
    contents.tensors["example.logits_f64"] = logits_f64;
  }
  if (command.format == "npy") {
    write_folder(contents, command.out);
  } else {
    write_checkpoint(contents, command.out);
  }
  fmt::print("{}: {} tensors\n", command.out, contents.tensors.size());
  return 0;
}

}  // namespace weft
