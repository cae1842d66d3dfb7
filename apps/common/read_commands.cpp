#include "apps/common/read_commands.h"

#include <set>

#include <nlohmann/json.hpp>

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

void check_resumed(const Configuration& wanted, const Configuration& saved, const RunOptions& run) {
  std::set<std::string> free = {"steps", "epochs", "patience", "data"};
  if (!run.seeds.empty()) free.insert("seed");
  for (const auto& [key, value] : wanted) {
    const SettingValue& had = *find(saved, key);
    require(free.contains(key) || value == SettingValue("auto") || value == had,
            "--{}: the run in {} has {}, and goes on with that; got {}", key, run.out,
            as_json(had).dump(), as_json(value).dump());
  }
}

}  // namespace weft
