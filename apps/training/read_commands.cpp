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

bool gives(const std::vector<std::string>& words, const std::string& option) {
  return std::ranges::any_of(
      words, [&](const std::string& word) { return word.substr(0, word.find('=')) == option; });
}

void check_effect(const std::vector<std::string>& line, const Configuration& settings,
                  const RunOptions& run) {
  const auto refused_if = [&](bool idle, const char* option, const std::string& why) {
    require(!idle || !gives(line, option), "{}: {}", option, why);
  };
  i64 steps = 0;
  std::string encoding = "conv";  // where there is no such setting, there is no --conv-width
  find(settings, "steps")->take(steps);
  if (const Json* const own = find(settings, "encoding")) own->take(encoding);
  refused_if(steps > 0, "--epochs",
             fmt::format("--steps, which is {}, decides; change that, or give only one", steps));
  refused_if(!run.seeds.empty(), "--seed", "--seeds are those to train with; give only one");
  refused_if(encoding != "conv", "--conv-width",
             fmt::format("is of --encoding conv, got --encoding {}", encoding));
  for (const char* option : {"--keep", "--checkpoint-steps"}) {
    refused_if(run.out.empty() && !run.print_config, option, "needs --out, the folder of the run");
  }
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
