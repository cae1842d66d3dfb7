#include "apps/command_line/settings.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "nn/optimizer.h"
#include "runtime/communicator.h"
#include "runtime/names.h"

namespace weft {

void check_limits(const std::string& name, double value, const Limits& limits) {
  const bool inside = limits.open ? value > limits.least && value < limits.most
                                  : value >= limits.least && value <= limits.most;
  require(inside, "--{}: wanted a number {} {:.10g} and {} {:.10g}, got {:.10g}", name,
          limits.open ? "above" : "of at least", limits.least, limits.open ? "below" : "at most",
          limits.most, value);
}

void check_word(const std::string& name, const std::string& value,
                const std::vector<std::string>& known) {
  require(std::count(known.begin(), known.end(), value) == 1,
          "--{}: there is no '{}'; there are {}", name, value, known_names(value, known));
}

void check_training(const TrainingSettings& settings) {
  check_word("schedule", settings.schedule, {"constant", "cosine", "linear"});
  make_optimizer(settings.optimizer, {});
}

void check_together(const TrainingSettings& settings) {
  require(settings.min_lr == 0 || settings.schedule != "constant",
          "--min-lr: a constant learning rate never falls; take --schedule cosine or linear");
  require(settings.min_lr <= settings.lr, "--min-lr: {:g} is above --lr, which is {:g}",
          settings.min_lr, settings.lr);
  require(settings.batch % settings.shards == 0,
          "--shards: {} do not divide the {} examples of --batch evenly", settings.shards,
          settings.batch);
  require(settings.shards % ranks().size() == 0,
          "--shards: {} ranks want a number of shards that they divide evenly, got {}",
          ranks().size(), settings.shards);
}

void check(const RunOptions& run) {
  require(run.report_steps > 0, "--report-steps: wanted 1 or more, got {}", run.report_steps);
  require(run.timeout > 0 && std::isfinite(run.timeout),
          "--timeout: wanted a finite number above 0, got {}", run.timeout);
  require(run.keep > 0, "--keep: wanted 1 or more, got {}", run.keep);
  require(run.checkpoint_steps >= 0, "--checkpoint-steps: wanted 0 or more, got {}",
          run.checkpoint_steps);
  require(!run.resume || !run.out.empty(), "--resume: needs --out, the folder of the run");
  require(!run.force || !run.out.empty(), "--force: needs --out, the folder of the run");
  require(!run.resume || !run.force, "--resume: excludes --force, which starts again");
  const std::set<std::uint64_t> distinct(run.seeds.begin(), run.seeds.end());
  require(distinct.size() == run.seeds.size(), "--seeds: a seed occurs twice");
}

std::vector<std::string> folders_of(const RunOptions& run) {
  std::vector<std::string> folders;
  for (const std::uint64_t seed : run.seeds) {
    folders.push_back(fmt::format("{}/seed-{}", run.out, seed));
  }
  return folders.empty() ? std::vector{run.out} : folders;
}

}  // namespace weft
