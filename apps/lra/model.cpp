#include "apps/lra/model.h"

#include "apps/command_line/configuration.h"
#include "apps/lra/listops.h"
#include "apps/training/run_folder.h"

namespace weft::lra {
namespace {

const CheckpointFormat format{.app = "lra", .version = "1", .more = {}};

// Computes a lower bound of the number of elements from the configured sizes, and throws if the
// file holds fewer, before anything is allocated.
void check_claims(const SequenceClassifierConfig& c, const Checkpoint& checkpoint,
                  const std::string& file) {
  i64 held = 0;
  for (const auto& [name, tensor] : checkpoint.tensors) held += tensor.count();
  const i64 claimed = c.layers * 2 * c.width * c.hidden + c.width * c.length;
  require(claimed <= held,
          "{}: its configuration (width {}, layers {}, hidden {}) needs more numbers than the {} "
          "in the file",
          file, c.width, c.layers, c.hidden, held);
}

}  // namespace

SequenceTask load_task(const Settings& settings) {
  if (settings.data != "builtin") return read_listops(settings.data);
  return drawn_listops(settings.data_seed,
                       {settings.examples, settings.held_out, settings.held_out});
}

Model new_model(const Settings& settings) {
  return {settings, std::make_unique<SequenceClassifier>(settings.model, settings.seed), {}};
}

std::map<std::string, std::string> metadata_of(const Model& model) {
  return checkpoint_metadata(format, configuration_of(model.settings));
}

Model read_model(const std::string& path) {
  const std::string file = checkpoint_file(path);
  Checkpoint checkpoint = read_checkpoint(file, format);
  const auto settings = settings_from_json<Settings>(checkpoint.metadata.at("configuration"), file);
  check_claims(settings.model, checkpoint, file);
  Model model = new_model(settings);
  load_weights(model.tensors(), checkpoint, format.app, file);
  model.metadata = std::move(checkpoint.metadata);
  return model;
}

}  // namespace weft::lra
