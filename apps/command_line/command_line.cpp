#include "apps/command_line/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <CLI/CLI.hpp>

#include "apps/command_line/computed_by.h"
#include "apps/command_line/output.h"
#include "nn/optimizer.h"
#include "runtime/communicator.h"
#include "runtime/listed.h"
#include "runtime/matmul.h"
#include "runtime/names.h"
#include "runtime/one_line.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr int bad_input = 2;

}  // namespace

void add_run_options(const Options& app, RunOptions& run) {
  each_run_option(run, [&](const std::string& name, auto& value, const char* help) {
    add_value(app, name, value, help);
  });
  app.help().group(once_group);
  app.add_option("--config", run.config,
                 "a TOML file of these options; later files override earlier ones, the command "
                 "line overrides all")
      .repeated()
      .group(once_group);
  const auto flag = [&](const char* name, bool& value, const char* help) {
    return app.add_flag(name, value, help).group(once_group);
  };
  flag("--print-config", run.print_config,
       "print the configuration in the format of --config, and exit");
  const Option dry_run =
      flag("--dry-run", run.dry_run,
           "print parameters, memory and operations per step; write nothing, and exit");
  flag("--profile", run.profile,
       "print where the time of a step goes, by op; write nothing, and exit")
      .excludes(dry_run);
  flag("--force", run.force, "replace an existing run in the folder");
  flag("--resume", run.resume,
       "resume the run in the folder with its settings, to the same bits as if it had never "
       "stopped; --steps, --epochs, --patience, --precision and --data may change");
}

std::string shell_word(const std::string& word) {
  constexpr const char* plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+./,:@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string all;
  for (const char c : word) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + all + "'";
}

std::string resume_command(const std::vector<std::string>& words) {
  std::string line = shell_word(program_invocation_name);
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (name != "--force" && name != "--resume") line += " " + shell_word(word);
  }
  return line + " --resume";
}

CommandLine::CommandLine(const Names& names)
    : app_(new_parser(names.description, names.app)), names_(names) {
  app_->set_version_flag("--version", fmt::format("{} {} ({}; gpu {})", names_.app, WEFT_VERSION,
                                                  text_of(computed_by()), gpu_of_build()));
  app_->require_subcommand(1);
}
CommandLine::~CommandLine() = default;

Options CommandLine::add(const std::string& command, const std::string& help) {
  CLI::App* const added = app_->add_subcommand(command, help);
  added->allow_extras();
  added->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const Options options(*added);
  options.add_option("--threads", threads_, threads_help).between(1, 4096);
  add_plugin_option(options).group(once_group);
  return options;
}

Options CommandLine::command(const std::string& name) const {
  return Options(*app_->get_subcommand(name));
}

void CommandLine::show_presets(const std::vector<std::string>& presets) {
  app_->footer(fmt::format("Presets, for --preset:\n  {}", listed(presets, "\n  ")));
}

std::string CommandLine::parse(std::vector<std::string> words) {
  const std::string first = words.empty() ? "" : words.front();
  if (first.empty() ||
      (first.starts_with("-") && first != "--help" && first != "-h" && first != "--version")) {
    words.insert(words.begin(), names_.known.front());
  } else if (!first.starts_with("-")) {
    require(std::count(names_.known.begin(), names_.known.end(), first) > 0,
            "there is no command '{}'; there are {}", first, known_names(first, names_.known));
  }
  for (const std::string& word : words) {  // else the parser takes the next word as the value
    require(!word.starts_with("--") || !word.ends_with("="), "{} needs a value", word);
  }
  try {
    std::reverse(words.begin(), words.end());
    app_->parse(std::move(words));
  } catch (const CLI::Error& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      const int status = app_->exit(error);
      flush_output();
      std::exit(status);
    }
    fail("{}", error.what());
  }
  CLI::App* const command = app_->get_subcommands().front();
  const Options options(*command);
  options.refuse_extras(options.name());
  if (threads_ > 0) set_threads(threads_);
  return command->get_name();
}

void add_checkpoint_instead(const Options& app, std::string& checkpoint) {
  const std::string help =
      std::string(checkpoint_help) + "; excludes the options of model and training";
  app.excluded_by(app.add_option("--checkpoint", checkpoint, help).shown_as("TEXT"),
                  settings_group);
}

std::function<void()> add_optimizer_shorthands(const Options& app, TrainingSettings& settings) {
  const auto decay = std::make_shared<double>(0);
  app.add_option("--weight-decay", *decay, "weight decay, short for --optimizer adamw:decay=0.1")
      .group(settings_group);
  return [app, &settings, decay] {
    const bool chosen = app.given("--optimizer");
    if (chosen && !app.given("--lr")) settings.lr = default_rate(settings.optimizer);
    if (!app.given("--weight-decay")) return;
    const std::string name = settings.optimizer.substr(0, settings.optimizer.find(':'));
    require(name == "adamw", "--weight-decay: {} has none; --optimizer adamw has one", name);
    require(!chosen || !gives_option(settings.optimizer, "decay"),
            "--weight-decay: --optimizer {} sets it already; give only one of them",
            settings.optimizer);
    settings.optimizer = with_option(settings.optimizer, "decay", *decay);
  };
}

int run_app(const char* name, int (*run)(const std::vector<std::string>& words), int argc,
            char** argv) {
  reserve_standard_streams();
  Communicator* all = nullptr;
  const auto failed = [&](int status, const std::string& what) {
    if (all != nullptr && !all->alone()) {
      all->end_all(fmt::format("{}: rank {}: {}", name, all->rank(), one_line(what)), status);
    }
    print_stderr("{}: {}", name, one_line(what));
    return status;
  };
  try {
    all = &ranks();
    if (!all->leads() && std::freopen("/dev/null", "w", stdout) == nullptr) return 1;
    if (!all->alone() && std::getenv("OMP_NUM_THREADS") == nullptr) {
      set_threads(std::max(1, threads() / all->on_this_machine()));
    }
    const int status = run(with_long_names({argv + 1, argv + argc}));
    flush_output();
    return status;
  } catch (const Error& error) {
    return failed(bad_input, error.what());
  } catch (const std::filesystem::filesystem_error& error) {  // name too long, no permission
    return failed(bad_input, error.path1().string() + ": " + error.code().message());
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) return failed(bad_input, "standard output could not be written");
    return failed(1, std::string("unexpected: ") + error.what());
  }
}

}  // namespace weft
