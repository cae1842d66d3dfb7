#include "apps/common/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>

#include <hwy/targets.h>

#include "nn/optimizer.h"
#include "ops/attention/mechanism.h"
#include "runtime/matmul.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr int bad_input = 2;

// Reports words that no option takes, with the nearest option.
void refuse_extras(const std::string& app, const CLI::App& command) {
  for (const std::string& word : command.remaining()) {
    const std::string name = word.substr(0, word.find('='));
    require(name.starts_with("-"), "{}: '{}' stands there without an option before it",
            command.get_name(), word);
    std::vector<std::string> known;
    for (const CLI::Option* option : command.get_options()) known.push_back(option->get_name());
    fail("{}: there is no option {}; did you mean {}? {} {} --help lists them all",
         command.get_name(), name, nearest_name(name, known), app, command.get_name());
  }
}

}  // namespace

void add_run_options(CLI::App& app, RunOptions& run) {
  app.add_option("--out", run.out, "folder to keep the models and the log in");
  app.add_flag("--force", run.force, "replace a run that is in the folder");
  app.add_flag("--resume", run.resume,
               "go on with the run in the folder, with its settings, to the same bits as if it had "
               "never stopped; --steps, --epochs and --patience may change");
  app.add_option("--keep", run.keep, "checkpoints to keep, besides that of the best model")
      ->capture_default_str();
  app.add_option("--checkpoint-steps", run.checkpoint_steps,
                 "steps between two checkpoints; 0: one after each validation")
      ->capture_default_str();
  app.add_option("--device", run.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_flag("--graph,!--no-graph", run.graph,
               "on a CUDA device: capture one step and replay it (the default)");
  app.add_option("--report-steps", run.report_steps, "steps between two lines of the log")
      ->capture_default_str();
  app.add_flag("--quiet", run.quiet, "print nothing");
  app.add_option("--seeds", run.seeds,
                 "as in 1,2,3: train with each, and say mean and standard error")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
}

std::string resume_command(const std::vector<std::string>& words) {
  constexpr const char* plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+./,:@%";
  std::string line = program_invocation_name;
  for (const std::string& word : words) {
    if (word == "--force" || word == "--resume") continue;
    const bool safe = !word.empty() && word.find_first_not_of(plain) == std::string::npos;
    std::string quoted;
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += safe ? " " + word : " '" + quoted + "'";
  }
  return line + " --resume";
}

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

CommandLine::CommandLine(std::string name, std::string description, std::vector<std::string> known)
    : app_(std::move(description), name), name_(std::move(name)), known_(std::move(known)) {
  app_.set_version_flag("--version",
                        fmt::format("{} {} ({}; {})", name_, WEFT_VERSION,
                                    hwy::TargetName(HWY_STATIC_TARGET), matmul_library()));
  app_.require_subcommand(1);
}

CLI::App& CommandLine::add(const std::string& command, const std::string& help) {
  CLI::App* const added = app_.add_subcommand(command, help);
  added->allow_extras();
  added->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  added->add_option("--threads", threads_, "that compute; by default one a core")
      ->check(CLI::Range(1, 4096));
  return *added;
}

std::string CommandLine::parse(std::vector<std::string> words) {
  const std::string first = words.empty() ? "" : words.front();
  if (first.empty() ||
      (first.starts_with("-") && first != "--help" && first != "-h" && first != "--version")) {
    words.insert(words.begin(), known_.front());
  } else if (!first.starts_with("-")) {
    require(std::find(known_.begin(), known_.end(), first) != known_.end(),
            "there is no command '{}'; there are {}", first, known_names(first, known_));
  }
  try {
    std::reverse(words.begin(), words.end());
    app_.parse(std::move(words));
  } catch (const CLI::Error& error) {
    if (error.get_exit_code() == 0) std::exit(app_.exit(error));
    fail("{}", error.what());
  }
  const CLI::App* const command = app_.get_subcommands().front();
  refuse_extras(name_, *command);
  if (threads_ > 0) set_threads(threads_);
  return command->get_name();
}

void add_checkpoint_instead(CLI::App& app, std::string& checkpoint) {
  CLI::Option* const own = app.add_option("--checkpoint", checkpoint, checkpoint_help);
  for (CLI::Option* option : app.get_options()) {
    if (option->get_group() == settings_group) own->excludes(option);
  }
}

void follow_optimizer(const CLI::App& app, TrainingSettings& settings) {
  if (app.count("--optimizer") > 0 && app.count("--lr") == 0) {
    settings.lr = default_rate(settings.optimizer);
  }
}

int run_app(const char* name, int (*run)(const std::vector<std::string>& words), int argc,
            char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return bad_input;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: unexpected: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace weft
