#include "apps/common/settings.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include <nlohmann/json.hpp>

#include "nn/file.h"
#include "nn/schedule.h"
#include "ops/attention/mechanism.h"

namespace weft {
namespace {

constexpr int not_finite_status = 4;

}  // namespace

void check_limits(const std::string& name, double value, const Limits& limits) {
  const bool inside = limits.open ? value > limits.least && value < limits.most
                                  : value >= limits.least && value <= limits.most;
  require(inside, "--{}: wanted a number {} {:g} and {} {:g}, got {:g}", name,
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

TrainOptions train_options(const TrainingSettings& s, std::int64_t epoch_steps,
                           const RunOptions& run) {
  const Schedule schedule{.kind = schedule_kind(s.schedule),
                          .rate = s.lr,
                          .warmup = s.warmup,
                          .steps = s.total_steps(epoch_steps)};
  TrainOptions options;
  options.steps = s.total_steps(epoch_steps);
  options.epoch_steps = epoch_steps;
  options.patience = s.patience;
  options.learning_rate = [schedule](std::int64_t step) { return schedule.at(step - 1); };
  if (s.clip > 0) options.clip = s.clip;
  options.report_steps = run.report_steps;
  options.graph = run.graph;
  return options;
}

std::unique_ptr<RunFolder> run_folder(const RunOptions& run) {
  if (run.out.empty()) return std::make_unique<RunFolder>();
  return std::make_unique<RunFolder>(run.out, run.force);
}

std::string kept(const RunOptions& run) {
  return run.out.empty() ? "keep   nothing; --out DIR keeps the model and its log"
                         : "keep   in " + run.out;
}

int training_status(const TrainResult& result, const TrainingSettings& settings,
                    const RunOptions& run, Progress& progress) {
  const std::string kept = run.out.empty() ? "" : "; the last good model is in " + run.out;
  if (result.skipped > 0) {
    progress.print(fmt::format("{} steps were skipped: their loss or gradient was not finite",
                               result.skipped));
  }
  if (result.ending == Ending::not_finite) {
    progress.print(
        fmt::format("stopped at step {}: the training left the finite numbers{}; try a "
                    "smaller --lr, or --clip 1",
                    result.steps, kept));
    return not_finite_status;
  }
  if (result.ending == Ending::interrupted) {
    progress.print(fmt::format("interrupted after step {}{}", result.steps,
                               run.out.empty() ? "" : "; the model is in " + run.out));
    return 128 + result.signal;
  }
  if (result.ending == Ending::out_of_patience) {
    progress.print(fmt::format("no better validation loss in {} epochs", settings.patience));
  }
  return 0;
}

int train_replicas(const RunOptions& run, std::uint64_t seed,
                   const std::function<Trained(std::uint64_t seed, const RunOptions& run)>& once) {
  require(run.report_steps > 0, "--report-steps: wanted 1 or more, got {}", run.report_steps);
  if (run.seeds.empty()) return once(seed, run).status;
  const std::set<std::uint64_t> distinct(run.seeds.begin(), run.seeds.end());
  require(distinct.size() == run.seeds.size(), "--seeds: one of them stands there twice");
  std::vector<std::vector<Figure>> found;
  for (const std::uint64_t own : run.seeds) {
    RunOptions options = run;
    if (!run.out.empty()) options.out = fmt::format("{}/seed-{}", run.out, own);
    Trained trained = once(own, options);
    if (trained.status != 0) return trained.status;
    found.push_back(std::move(trained.figures));
  }
  Progress progress(run.quiet);
  nlohmann::ordered_json summary = {{"seeds", run.seeds}};
  const auto n = static_cast<double>(found.size());
  for (std::size_t i = 0; i < found[0].size(); ++i) {
    double mean = 0, squares = 0;
    for (const std::vector<Figure>& figures : found) mean += figures[i].value / n;
    for (const std::vector<Figure>& figures : found) {
      squares += (figures[i].value - mean) * (figures[i].value - mean);
    }
    const double error = n > 1 ? std::sqrt(squares / (n - 1) / n) : 0;
    progress.print(fmt::format("{:.0f} seeds: {:.4f} ± {:.4f} {} (mean ± standard error)", n, mean,
                               error, found[0][i].unit));
    summary[found[0][i].key] = {{"mean", mean}, {"standard_error", error}};
  }
  if (!run.out.empty()) {
    const std::string text = summary.dump(2) + "\n";
    OutputFile file(run.out + "/replicas.json");
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  }
  return 0;
}

}  // namespace weft
