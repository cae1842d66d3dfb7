#include "apps/lra/model.h"

#include "apps/command_line/configuration.h"
#include "apps/lra/documents.h"
#include "apps/lra/image.h"
#include "apps/lra/listops.h"
#include "apps/lra/pathfinder.h"
#include "apps/lra/reviews.h"
#include "apps/lra/sheet.h"
#include "apps/training/run_folder.h"

namespace weft::lra {
namespace {

const CheckpointFormat format{.app = "lra", .version = "1", .more = {}};

// A lower bound of the number of elements.
i64 claimed(const SequenceClassifierConfig& c) {
  return c.layers * 2 * c.width * c.hidden + c.width * c.length;
}

// Sets the sizes that the task determines.
void take_sizes(Settings& settings) {
  const TaskFacts& task = facts_of(settings.task);
  settings.model.symbols = task.symbols;
  settings.model.classes = task.classes;
  settings.model.length = task.length;
  settings.model.together = task.together;
}

}  // namespace

SequenceTask load_task(const Settings& settings) {
  const TaskFacts& task = facts_of(settings.task);
  const bool drawn = settings.data == "builtin";
  require(!drawn || task.examples > 0, "--data: {} has no built-in data; wanted the folder of {}",
          task.name, task.released);
  if (task.name == "image") return read_image(settings.data);
  if (task.name == "text") return read_reviews(settings.data);
  if (task.name == "retrieval") return read_documents(settings.data);
  const i64 held_out = settings.held_out > 0 ? settings.held_out : task.held_out;
  const PartCounts counts{settings.examples > 0 ? settings.examples : task.examples, held_out,
                          held_out};
  if (task.name == "pathfinder") {
    require(drawn, "--data: pathfinder has built-in data alone; wanted builtin, got {}",
            settings.data);
    return drawn_pathfinder(settings.data_seed, counts);
  }
  return drawn ? drawn_listops(settings.data_seed, counts) : read_listops(settings.data);
}

void write_data(const std::string& task, const SequenceTask& data, const std::string& folder) {
  if (task == "listops") return write_listops(data, folder);
  require(task == "image" || task == "pathfinder",
          "--out: {} is written nowhere; listops has files, image and pathfinder have sheets",
          task);
  write_sheets(data, folder);
}

Model new_model(Settings settings) {
  take_sizes(settings);
  auto network = std::make_unique<SequenceClassifier>(settings.model, settings.seed);
  return {std::move(settings), std::move(network), {}};
}

std::map<std::string, std::string> metadata_of(const Model& model) {
  return checkpoint_metadata(format, configuration_of(model.settings));
}

Model read_model(const std::string& path) {
  const std::string file = checkpoint_file(path);
  Checkpoint checkpoint = read_checkpoint(file, format);
  auto settings = settings_from_json<Settings>(checkpoint.metadata.at("configuration"), file);
  take_sizes(settings);
  const SequenceClassifierConfig& m = settings.model;
  check_claims(claimed(m), checkpoint, file,
               fmt::format("width {}, layers {}, hidden {}", m.width, m.layers, m.hidden));
  Model model = new_model(std::move(settings));
  load_weights(model.tensors(), checkpoint, format.app, file);
  model.metadata = std::move(checkpoint.metadata);
  return model;
}

}  // namespace weft::lra
