#include "apps/training/run.h"

#include <cmath>
#include <filesystem>

#include "apps/command_line/configuration.h"
#include "apps/command_line/device_option.h"
#include "apps/command_line/output.h"
#include "apps/command_line/printable.h"
#include "apps/training/dry_run.h"
#include "apps/training/profile.h"
#include "apps/training/signal_watch.h"
#include "apps/training/trial_step.h"
#include "nn/file.h"
#include "nn/schedule.h"
#include "runtime/communicator.h"
#include "runtime/gemm.h"
#include "runtime/matmul.h"

namespace weft {

TrainOptions train_options(const TrainingSettings& s, i64 epoch_steps, const RunOptions& run) {
  const Schedule schedule{.kind = schedule_kind(s.schedule),
                          .rate = s.lr,
                          .warmup = s.warmup,
                          .steps = s.total_steps(epoch_steps),
                          .last = s.min_lr};
  TrainOptions options;
  options.steps = s.total_steps(epoch_steps);
  options.epoch_steps = epoch_steps;
  options.patience = s.patience;
  options.learning_rate = [schedule](i64 step) { return schedule.at(step - 1); };
  if (s.clip > 0) options.clip = s.clip;
  options.report_steps = run.report_steps;
  options.checkpoint_steps = run.checkpoint_steps;
  options.graph = run.graph;
  options.detect_anomaly = run.detect_anomaly;
  options.shards = s.shards;
  return options;
}

std::unique_ptr<RunFolder> run_folder(const RunOptions& run) {
  const Start start = run.resume ? Start::resume : run.force ? Start::replace : Start::fresh;
  auto folder = run.out.empty() || run.only_measures()
                    ? std::make_unique<RunFolder>()
                    : std::make_unique<RunFolder>(run.out, start, run.keep);
  if (run.json_lines) folder->print_log();
  return folder;
}

std::string kept(const RunOptions& run) {
  if (run.dry_run) return "keep   nothing; this is a dry run";
  if (run.profile) return "keep   nothing; this is a profile";
  return run.out.empty() ? "keep   nothing; --out DIR keeps the model and its log"
                         : "keep   in " + run.out;
}

Device device_of(const RunOptions& run, const std::string& precision) {
  const Device device = device_named(run.device);
  const bool tf32 = precision == "tf32";
  require(!tf32 || device.type == DeviceType::cuda,
          "--precision tf32 is of CUDA devices, got --device {}; use f32 or bf16", run.device);
  set_products_in_tf32(tf32);
  return device;
}

void print_precision(const std::string& precision, const RunOptions& run, Progress& progress) {
  if (!run.precision_before.empty()) {
    progress.print(
        fmt::format("train  in {} from here on, in {} before", precision, run.precision_before));
  }
  if (precision == "tf32") progress.print("store  numbers in f32; products in tf32 by cuBLAS");
  if (precision != "bf16") return;
  if (run.device == "cpu" && !gemm_bf16_is_native()) {
    progress.print(
        "store  activations in bf16; this processor multiplies in f32, so that it will not "
        "be faster");
  } else {
    progress.print(fmt::format("store  activations in bf16; products in bf16 by {}",
                               run.device == "cpu" ? gemm_bf16_library() : "cuBLAS"));
  }
}

namespace {

constexpr int not_finite_status = 4;

// What to say of a signal: how to resume.
std::string interrupted(const std::string& when, const RunOptions& run) {
  return fmt::format("interrupted {}{}", when,
                     run.resume_command.empty() ? "" : "; to resume:\n" + run.resume_command);
}

// Thrown out of the scoring of the test part.
struct Interruption {};

// Prints the reason if the training ended early; returns the exit status.
int status_of(const TrainResult& result, const Task& task, const TrainingSettings& settings,
              const RunOptions& run, Progress& progress) {
  if (result.skipped > 0) {
    progress.print(fmt::format("{} steps were skipped: their loss or gradient was not finite",
                               result.skipped));
  }
  if (result.ending == Ending::not_finite) {
    std::string said = fmt::format(
        "stopped at step {}: the training diverged to values that are not finite; try a smaller "
        "--lr, or --clip 1",
        result.steps);
    if (!run.out.empty()) {
      said += fmt::format("; the last good model is {}/last.safetensors", run.out);
    }
    if (!run.detect_anomaly) {
      said += run.out.empty()
                  ? "; --detect-anomaly names the first such value"
                  : "; to name the first such value:\n" + run.resume_command + " --detect-anomaly";
    }
    if (run.silent() && ranks().leads()) {
      print_stderr("{}", said);  // errors are printed with --quiet too
    } else {
      progress.print(said);
    }
    return not_finite_status;
  }
  if (result.ending == Ending::interrupted) {
    progress.print(interrupted(fmt::format("after step {}", result.steps), run));
    return 128 + result.signal;
  }
  if (result.ending == Ending::out_of_patience) {
    progress.print(fmt::format("no improvement in {} {}s", settings.patience, task.round));
  }
  return 0;
}

Json to_json(const std::vector<Figure>& figures) {
  Json all = Json::array();
  for (const Figure& figure : figures) {
    all.push_back({{"key", figure.key}, {"unit", figure.unit}, {"value", figure.value}});
  }
  return all;
}

void note_warmup(const TrainingSettings& settings, const TrainOptions& options,
                 Progress& progress) {
  if (settings.warmup <= options.steps) return;
  progress.note(
      fmt::format("the warm-up of {} steps is longer than the run, of {}: the learning rate "
                  "reaches {:.3g}, not {:g}",
                  grouped(settings.warmup), grouped(options.steps),
                  options.learning_rate(options.steps), settings.lr));
}

// Sends a table of all settings to TensorBoard.
void show_configuration(const Task& task, RunFolder& folder) {
  const auto found = task.metadata.find("configuration");
  if (found == task.metadata.end()) return;
  std::string table = "| setting | value |\n| --- | --- |\n";
  for (const auto& [key, value] : parse_configuration(found->second, "configuration")) {
    std::string word, shown;
    for (const char c : value.take(word) ? word : value.text()) {
      shown += c == '|' ? "\\|" : std::string(1, c);
    }
    table += fmt::format("| {} | {} |\n", key, printable(shown));
  }
  folder.show_text("configuration", table);
}

// The figures of a folder's result, if it is valid.
std::optional<std::vector<Figure>> figures_of(const Json& result) {
  if (!result.is<Json::Array>()) return {};
  std::vector<Figure> figures;
  for (const Json& entry : result.items()) {
    Figure figure;
    const auto take = [&](const char* name, auto& to) {
      const Json* const found = entry.find(name);
      return found != nullptr && found->take(to);
    };
    if (!take("key", figure.key) || !take("unit", figure.unit) || !take("value", figure.value)) {
      return {};
    }
    figures.push_back(figure);
  }
  return figures;
}

// Of the ranks that write and print nothing.
RunOptions without_output(RunOptions run) {
  run.out.clear();
  run.resume = run.force = run.json_lines = false;
  run.quiet = true;
  return run;
}

}  // namespace

std::optional<Trained> ended_before(const RunFolder& folder, const Task& task,
                                    const TrainOptions& options, Progress& progress) {
  const SavedTraining* const saved = folder.resumed();
  Json result;  // on the other ranks that of the one that keeps it
  if (saved != nullptr && is_over(*saved, task, options, folder.path())) {
    result = folder.result(saved->step);
  }
  if (!ranks().alone()) result = parse_json(ranks().broadcast(result.text())).value_or(Json());
  const auto figures = figures_of(result);
  if (!figures) return {};
  progress.print(fmt::format("{}: the training ended after step {}; nothing is left to do",
                             folder.path(), saved == nullptr ? 0 : saved->step));
  for (const Figure& f : *figures) progress.print(fmt::format("test   {:.4f} {}", f.value, f.unit));
  return Trained{0, *figures};
}

Trained run_training(const Task& asked, const TrainOptions& options,
                     const TrainingSettings& settings, const RunOptions& run, RunFolder& folder,
                     Progress& progress, const Scoring& score) {
  Task task = asked;
  if (settings.overfit_batch) {
    task.batch = [first = asked.batch](std::uint32_t) { return first(1); };
    progress.print("train  on the first batch alone");
  }
  const auto optimizer = make_optimizer(settings.optimizer, task.parameters);
  note_warmup(settings, options, progress);
  std::optional<SignalWatch> watch;
  TrainResult result;
  try {
    if (run.dry_run) return print_dry_run(task, options, *optimizer, run.json_lines), Trained{};
    if (run.profile) return print_profile(task, options, *optimizer, run.json_lines), Trained{};
    watch.emplace();
    show_configuration(task, folder);
    result = train(task, options, *optimizer, folder, progress);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(error.what() + shards_that_fit(task, options, *optimizer, progress));
  }
  const int status = status_of(result, task, settings, run, progress);
  if (status != 0) return {status, {}};
  Trained trained;
  const auto interrupt = [&](const std::string& when) {
    trained.status = 128 + SignalWatch::caught();
    if (!ranks().alone()) ranks().end_all(interrupted(when, run), trained.status);
    progress.print(interrupted(when, run));
    return trained;
  };
  try {
    trained.figures = score(result, [&](double share) {
      if (SignalWatch::caught() != 0) throw Interruption();
      progress.update(fmt::format("test {:.0f} %", 100 * share));
    });
  } catch (const Interruption&) {
    return interrupt("before the test was scored");
  }
  folder.finish(result.steps, to_json(trained.figures));
  return SignalWatch::caught() == 0 ? trained : interrupt("after the test was scored");
}

int train_replicas(const RunOptions& asked, std::uint64_t seed,
                   const std::function<Trained(std::uint64_t seed, const RunOptions& run)>& once) {
  check(asked);
  const RunOptions run = ranks().leads() ? asked : without_output(asked);
  ranks().patience = run.timeout;
  if (run.seeds.empty()) return once(seed, run).status;
  if (run.only_measures()) return once(run.seeds.front(), run).status;
  const std::vector<std::string> folders = folders_of(run);
  const std::string summary_file = run.out + "/replicas.json";
  if (!run.out.empty() && !run.force && !run.resume) {  // check all before the first is trained
    for (const std::string& folder : folders) require_no_run(folder);
    require(!std::filesystem::exists(summary_file),
            "{}: exists already; --force replaces it, or choose another --out", summary_file);
  }
  std::vector<std::vector<Figure>> found;
  for (std::size_t i = 0; i < run.seeds.size(); ++i) {
    RunOptions options = run;
    if (!run.out.empty()) options.out = folders[i];
    if (run.resume && saved_trainings(folders[i]).empty()) {
      options.resume = false;
      options.force = true;  // it was stopped before its first checkpoint
    }
    Trained trained = once(run.seeds[i], options);
    if (trained.status != 0) return trained.status;
    found.push_back(std::move(trained.figures));
  }
  Progress progress(run.silent());
  Json summary = {{"seeds", run.seeds}};
  const auto n = static_cast<double>(found.size());
  for (std::size_t i = 0; i < found[0].size(); ++i) {
    double mean = 0, squares = 0;
    for (const std::vector<Figure>& figures : found) mean += figures[i].value / n;
    for (const std::vector<Figure>& figures : found) {
      squares += (figures[i].value - mean) * (figures[i].value - mean);
    }
    Json error;  // null for one seed, whose error is unknown
    if (n > 1) {
      const double own = std::sqrt(squares / (n - 1) / n);
      error = own;
      progress.print(fmt::format("{:.0f} seeds: {:.4f} ± {:.4f} {} (mean ± standard error)", n,
                                 mean, own, found[0][i].unit));
    } else {
      progress.print(fmt::format("1 seed: {:.4f} {}", mean, found[0][i].unit));
    }
    summary[found[0][i].key] = {{"mean", mean}, {"standard_error", error}};
  }
  if (run.json_lines) print_json(summary);
  if (!run.out.empty()) write_file(summary_file, summary.text(2) + "\n");
  return 0;
}

}  // namespace weft
