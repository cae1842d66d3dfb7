#include "apps/wordlm/model.h"

#include "apps/command_line/configuration.h"
#include "apps/training/run_folder.h"

namespace weft::wordlm {
namespace {

const CheckpointFormat format{.app = "wordlm", .version = "1", .more = {"pieces"}};

}  // namespace

Model new_model(Settings settings, std::shared_ptr<const WordPieces> pieces) {
  if (pieces) settings.model.vocabulary = pieces->size();
  auto network = std::make_unique<UniversalTransformer>(settings.model, settings.seed);
  return {std::move(settings), std::move(pieces), std::move(network), {}};
}

std::map<std::string, std::string> metadata_of(const Model& model) {
  auto metadata = checkpoint_metadata(format, configuration_of(model.settings));
  if (model.pieces) metadata["pieces"] = model.pieces->save();
  return metadata;
}

Model read_model(const std::string& path, const std::string& attention) {
  const std::string file = checkpoint_file(path);
  Checkpoint checkpoint = read_checkpoint(file, format);
  const auto& metadata = checkpoint.metadata;
  auto settings = settings_from_json<Settings>(metadata.at("configuration"), file);
  auto pieces = restore_pieces(metadata.at("pieces"), file);
  settings.model.vocabulary = pieces->size();
  const auto table = checkpoint.tensors.find("embedding.table");
  require(table != checkpoint.tensors.end() && table->second.rank() == 2 &&
              table->second.size(0) == pieces->size(),
          "{}: its vocabulary has {} pieces, which its embedding does not fit", file,
          pieces->size());
  if (!attention.empty()) swap_attention(settings.model, attention, file);
  auto network = load_network(settings.model, checkpoint, format.app, file);
  checkpoint.metadata.erase("pieces");  // long, and kept in model.pieces
  return {std::move(settings), std::move(pieces), std::move(network),
          std::move(checkpoint.metadata)};
}

}  // namespace weft::wordlm
