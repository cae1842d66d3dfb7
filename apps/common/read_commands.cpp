#include "apps/common/read_commands.h"

#include <set>

namespace weft {

std::string configuration_to_resume(const RunOptions& run) {
  for (const std::string& folder : folders_of(run)) {
    if (saved_trainings(folder).empty()) continue;
    const Checkpoint model = read_last_training(folder).model;
    require(model.metadata.contains("configuration"), "{}: its checkpoint has no configuration",
            folder);
    return model.metadata.at("configuration");
  }
  fail("{}: holds no checkpoint to resume from; start again without --resume", run.out);
}

void check_resumed(const nlohmann::ordered_json& wanted, const nlohmann::ordered_json& saved,
                   const RunOptions& run) {
  std::set<std::string> free = {"steps", "epochs", "patience", "data"};
  if (!run.seeds.empty()) free.insert("seed");
  for (const auto& [key, value] : wanted.items()) {
    require(free.contains(key) || value == "auto" || value == saved.at(key),
            "--{}: the run in {} has {}, and goes on with that; got {}", key, run.out,
            saved.at(key).dump(), value.dump());
  }
}

}  // namespace weft
