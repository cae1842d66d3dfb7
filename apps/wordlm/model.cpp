#include "apps/wordlm/model.h"

#include "apps/common/configuration.h"
#include "apps/common/run_folder.h"

namespace weft::wordlm {
namespace {

constexpr const char* format_key = "wordlm_format";
constexpr const char* format = "1";

}  // namespace

Model new_model(Settings settings, std::shared_ptr<const WordPieces> pieces) {
  if (pieces) settings.model.vocabulary = pieces->size();
  auto network = std::make_unique<UniversalTransformer>(settings.model, settings.seed);
  return {std::move(settings), std::move(pieces), std::move(network), {}};
}

std::map<std::string, std::string> metadata_of(const Model& model) {
  using Handler = nlohmann::ordered_json::error_handler_t;
  return {{format_key, format},
          {"weft_version", WEFT_VERSION},
          {"pieces", model.pieces->save()},
          {"configuration", to_json(model.settings).dump(-1, ' ', false, Handler::replace)}};
}

Model read_model(const std::string& path, const std::string& attention) {
  const std::string file = checkpoint_file(path);
  Checkpoint checkpoint = read_checkpoint(file);
  const auto& metadata = checkpoint.metadata;
  require(metadata.contains(format_key) && metadata.contains("configuration") &&
              metadata.contains("pieces"),
          "{}: is a safetensors file, but not one that wordlm wrote", file);
  require(metadata.at(format_key) == format, "{}: is of format {}, this wordlm reads format {}",
          file, metadata.at(format_key), format);
  auto settings = settings_from_json<Settings>(metadata.at("configuration"), file);
  auto pieces = restore_pieces(metadata.at("pieces"), file);
  settings.model.vocabulary = pieces->size();
  const auto table = checkpoint.tensors.find("embedding.table");
  require(table != checkpoint.tensors.end() && table->second.rank() == 2 &&
              table->second.size(0) == pieces->size(),
          "{}: its vocabulary has {} pieces, which its embedding does not fit", file,
          pieces->size());
  if (!attention.empty()) swap_attention(settings.model, attention, file);
  auto network = load_network(settings.model, checkpoint, "wordlm", file);
  checkpoint.metadata.erase("pieces");  // they are there, and long
  return {std::move(settings), std::move(pieces), std::move(network),
          std::move(checkpoint.metadata)};
}

}  // namespace weft::wordlm
