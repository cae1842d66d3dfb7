#include "apps/charlm/model.h"

#include "apps/common/configuration.h"
#include "apps/common/run_folder.h"

namespace weft::charlm {
namespace {

constexpr const char* format_key = "charlm_format";
constexpr const char* format = "1";

}  // namespace

Model new_model(Settings settings) {
  if (settings.vocabulary == "auto") settings.vocabulary = "text8";
  settings.model.vocabulary = size_of(vocabulary_named(settings.vocabulary));
  auto network = std::make_unique<UniversalTransformer>(settings.model, settings.seed);
  return {std::move(settings), std::move(network), {}};
}

std::map<std::string, std::string> metadata_of(const Settings& settings) {
  using Handler = nlohmann::ordered_json::error_handler_t;
  return {{format_key, format},
          {"weft_version", WEFT_VERSION},
          {"configuration", to_json(settings).dump(-1, ' ', false, Handler::replace)}};
}

Model read_model(const std::string& path, const std::string& attention) {
  const std::string file = checkpoint_file(path);
  Checkpoint checkpoint = read_checkpoint(file);
  const auto& metadata = checkpoint.metadata;
  require(metadata.contains(format_key) && metadata.contains("configuration"),
          "{}: is a safetensors file, but not one that charlm wrote", file);
  require(metadata.at(format_key) == format, "{}: is of format {}, this charlm reads format {}",
          file, metadata.at(format_key), format);
  auto settings = settings_from_json<Settings>(metadata.at("configuration"), file);
  require(settings.vocabulary != "auto", "{}: its configuration names no vocabulary", file);
  settings.model.vocabulary = size_of(vocabulary_named(settings.vocabulary));
  if (!attention.empty()) swap_attention(settings.model, attention, file);
  auto network = load_network(settings.model, checkpoint, "charlm", file);
  return {std::move(settings), std::move(network), std::move(checkpoint.metadata)};
}

}  // namespace weft::charlm
