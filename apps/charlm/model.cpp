#include "apps/charlm/model.h"

#include "apps/command_line/configuration.h"
#include "apps/training/run_folder.h"

namespace weft::charlm {
namespace {

const CheckpointFormat format{.app = "charlm", .version = "1"};

}  // namespace

Model new_model(Settings settings, const Text& text) {
  settings.vocabulary = text.vocabulary.name();
  settings.split = resolved_split(settings.split, text);
  settings.model.vocabulary = text.vocabulary.size();
  auto network = std::make_unique<UniversalTransformer>(settings.model, settings.seed);
  return {std::move(settings), text.vocabulary, std::move(network), {}};
}

std::map<std::string, std::string> metadata_of(const Model& model) {
  auto metadata = checkpoint_metadata(format, configuration_of(model.settings));
  const std::string& characters = model.vocabulary.characters();
  if (!characters.empty()) metadata["characters"] = characters;
  return metadata;
}

Model read_model(const std::string& path, const std::string& attention) {
  const std::string file = checkpoint_file(path);
  Checkpoint checkpoint = read_checkpoint(file, format);
  auto settings = settings_from_json<Settings>(checkpoint.metadata.at("configuration"), file);
  const auto characters = checkpoint.metadata.find("characters");
  const Vocabulary vocabulary = Vocabulary::restore(
      settings.vocabulary, characters == checkpoint.metadata.end() ? "" : characters->second, file);
  settings.model.vocabulary = vocabulary.size();
  if (!attention.empty()) swap_attention(settings.model, attention, file);
  auto network = load_network(settings.model, checkpoint, format.app, file);
  return {std::move(settings), vocabulary, std::move(network), std::move(checkpoint.metadata)};
}

}  // namespace weft::charlm
