#include "apps/vision/model.h"

#include <algorithm>

#include "apps/command_line/configuration.h"
#include "apps/data/cifar.h"
#include "apps/training/run_folder.h"

namespace weft::vision {
namespace {

const CheckpointFormat format{.app = "vision", .version = "1", .more = {"classes"}};

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : "\n") + name;
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return lines;
}

// A lower bound of the number of elements.
i64 claimed(const VisionTransformerConfig& c) {
  const i64 values = c.value_width > 0 ? c.value_width : c.width;
  return c.layers * c.width * (2 * c.hidden + values) + c.width * c.tokens();
}

}  // namespace

Model new_model(Settings settings, std::vector<std::string> classes) {
  if (settings.dataset == "auto") settings.dataset = "builtin";
  if (classes.empty()) classes = class_names(settings.dataset);
  settings.model.classes = static_cast<i64>(classes.size());
  auto network = std::make_unique<VisionTransformer>(settings.model, settings.seed);
  return {std::move(settings), std::move(classes), std::move(network), {}};
}

std::map<std::string, std::string> metadata_of(const Model& model) {
  auto metadata = checkpoint_metadata(format, configuration_of(model.settings));
  metadata["classes"] = joined(model.classes);
  return metadata;
}

Model read_model(const std::string& path) {
  const std::string file = checkpoint_file(path);
  Checkpoint checkpoint = read_checkpoint(file, format);
  const auto& metadata = checkpoint.metadata;
  auto settings = settings_from_json<Settings>(metadata.at("configuration"), file);
  require(settings.dataset != "auto", "{}: its configuration names no data set", file);
  std::vector<std::string> classes = lines_of(metadata.at("classes"));
  const std::size_t wanted = class_names(settings.dataset).size();
  require(classes.size() == wanted, "{}: names {} classes; {} has {}", file, classes.size(),
          settings.dataset, wanted);
  const VisionTransformerConfig& m = settings.model;
  check_claims(claimed(m), checkpoint, file,
               fmt::format("width {}, layers {}, hidden {}, patch {}", m.width, m.layers, m.hidden,
                           m.patch));
  Model model = new_model(std::move(settings), std::move(classes));
  load_weights(model.tensors(), checkpoint, format.app, file);
  model.metadata = std::move(checkpoint.metadata);
  return model;
}

}  // namespace weft::vision
