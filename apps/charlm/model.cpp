#include "apps/charlm/model.h"

#include "apps/common/configuration.h"
#include "apps/common/run_folder.h"

namespace weft::charlm {
namespace {

const CheckpointFormat format{.app = "charlm", .version = "1"};

}  // namespace

Model new_model(Settings settings) {
  if (settings.vocabulary == "auto") settings.vocabulary = "text8";
  settings.model.vocabulary = size_of(vocabulary_named(settings.vocabulary));
  auto network = std::make_unique<UniversalTransformer>(settings.model, settings.seed);
  return {std::move(settings), std::move(network), {}};
}

std::map<std::string, std::string> metadata_of(const Settings& settings) {
  return checkpoint_metadata(format, to_json(settings));
}

Model read_model(const std::string& path, const std::string& attention) {
  const std::string file = checkpoint_file(path);
  Checkpoint checkpoint = read_checkpoint(file, format);
  auto settings = settings_from_json<Settings>(checkpoint.metadata.at("configuration"), file);
  require(settings.vocabulary != "auto", "{}: its configuration names no vocabulary", file);
  settings.model.vocabulary = size_of(vocabulary_named(settings.vocabulary));
  if (!attention.empty()) swap_attention(settings.model, attention, file);
  auto network = load_network(settings.model, checkpoint, format.app, file);
  return {std::move(settings), std::move(network), std::move(checkpoint.metadata)};
}

}  // namespace weft::charlm
