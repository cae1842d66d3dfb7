#include "apps/training/read_commands.h"
#include "apps/training/saved_training.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "ops/attention/mechanism.h"
#include "runtime/communicator.h"

namespace weft {

namespace {

std::string last_configuration(const RunOptions& run) {
  for (const std::string& folder : folders_of(run)) {
    if (saved_trainings(folder).empty()) continue;
    const Checkpoint model = read_last_training(folder).model;
    require(model.metadata.contains("configuration"), "{}: its checkpoint has no configuration",
            folder);
    return model.metadata.at("configuration");
  }
  std::string seeds;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run.out, error)) {
    const std::string name = entry.path().filename().string();
    if (run.seeds.empty() && name.starts_with("seed-") && !saved_trainings(entry.path()).empty()) {
      seeds = name;
    }
  }
  require(seeds.empty(), "{}: holds a run of --seeds ({}); give --seeds with --resume", run.out,
          seeds);
  fail("{}: holds no checkpoint to resume from; start again with --force in place of --resume",
       run.out);
}

}  // namespace

std::string configuration_to_resume(const RunOptions& run) {
  return ranks().broadcast(ranks().leads() ? last_configuration(run) : "");
}

void check_resumed(const Configuration& wanted, const Configuration& saved, const RunOptions& run) {
  std::set<std::string> free = {"steps", "epochs", "patience", "data", "precision"};
  if (!run.seeds.empty()) free.insert("seed");
  for (const auto& [key, value] : wanted) {
    const Json& had = *find(saved, key);
    require(free.contains(key) || value == Json("auto") || value == had,
            "--{}: the run in {} has {}, which cannot change; got {}", key, run.out, had.text(),
            value.text());
  }
}

bool gives_dropout(const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [](const std::string& word) {
    return word.substr(0, word.find('=')) == "--attention-dropout";
  });
}

double dropout_of(const std::string& attention, double rate, bool given) {
  if (rate == 0 || AttentionSpec(attention).mechanism().drops_weights) return rate;
  require(!given,
          "--attention-dropout: {} computes no weights that could be dropped, got {}; "
          "leave it out",
          attention, rate);
  return 0;
}

}  // namespace weft
