// charlm: language models over characters.
//
//     charlm [train] [options]   trains; without options on the built-in corpus, in about a minute
//     charlm eval                scores a checkpoint
//     charlm sample              writes text
//     charlm info                lists a model's parameters
//
// Exit status: 0; 1 where the program itself is wrong; 2 for bad input, with one line on stderr;
// 4 where training left the finite numbers; 128 + the number of the signal that ended it.
#include <cstdio>

#include <CLI/CLI.hpp>
#include <hwy/targets.h>

#include "apps/charlm/commands.h"
#include "nn/optimizer.h"
#include "ops/attention/mechanism.h"
#include "runtime/matmul.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr int bad_input = 2;
constexpr const char* settings_group = "Model and training";

// The command line into these; nothing is opened or checked beyond the syntax.
struct CommandLine {
  TrainCommand train;
  EvalCommand eval;
  SampleCommand sample;
  InfoCommand info;
  int threads = 0;  // 0: as many as there are cores
  std::string command;
};

void add_settings(CLI::App& app, Settings& settings) {
  app.add_option("--preset", settings.preset,
                 "a model of the agglomerative-attention paper; other options change it")
      ->group(settings_group);
  each_setting(settings, [&](const std::string& name, auto& value, const Limits&,
                             const char* help) {
    const std::string option = "--" + name;
    CLI::Option* made = nullptr;
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, bool>) {
      made = app.add_flag(option + ",!--no-" + name, value, help);
    } else {
      made = app.add_option(option, value, help)->capture_default_str();
    }
    // The parser itself would wrap a negative number round.
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::uint64_t>) {
      made->check(CLI::NonNegativeNumber);
    }
    made->group(settings_group);
  });
}

// What the parser cannot say by itself: --dropout stands for three, another optimizer has another
// usual learning rate.
void add_shorthands(CLI::App& app, Settings& settings) {
  const auto dropout = std::make_shared<double>(0);
  app.add_option("--dropout", *dropout, "all three dropout rates that are not given themselves")
      ->group(settings_group);
  app.final_callback([&app, &settings, dropout] {
    const auto given = [&](const std::string& name) { return app.count(name) > 0; };
    if (given("--dropout")) {
      const auto share = [&](const std::string& name, double& rate) {
        if (!given(name)) rate = *dropout;
      };
      share("--attention-dropout", settings.model.attention_dropout);
      share("--residual-dropout", settings.model.residual_dropout);
      share("--output-dropout", settings.model.output_dropout);
    }
    if (given("--optimizer") && !given("--lr")) settings.lr = default_rate(settings.optimizer);
  });
}

void add_train(CLI::App& app, TrainCommand& train) {
  add_settings(app, train.settings);
  add_shorthands(app, train.settings);
  app.add_option("--out", train.out, "folder to keep the models and the log in");
  app.add_flag("--force", train.force, "replace a run that is in the folder");
  app.add_flag("--allow-leaky", train.allow_leaky,
               "also an attention that is not strictly causal");
  app.add_option("--device", train.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_flag("--graph,!--no-graph", train.graph,
               "on a CUDA device: capture one step and replay it (the default)");
  app.add_option("--report-steps", train.report_steps, "steps between two lines of the log")
      ->capture_default_str();
  app.add_flag("--quiet", train.quiet, "print nothing");
}

void add_eval(CLI::App& app, EvalCommand& eval) {
  app.add_option("--checkpoint", eval.checkpoint, "a run's folder or a .safetensors file")
      ->required();
  app.add_option("--attention", eval.attention, "a mechanism to score the weights with, instead of "
                 "the one that they were trained with");
  app.add_option("--data", eval.data, "text, if not what the model was trained on");
  app.add_option("--split", eval.split, "train, validation or test")->capture_default_str();
  app.add_flag("--paper", eval.paper, "also random windows, as the paper scores");
  app.add_option("--seed", eval.seed, "of the random windows; by default the model's")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--allow-leaky", eval.allow_leaky,
               "also an attention that is not strictly causal");
  app.add_option("--device", eval.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_flag("--json", eval.json, "print one JSON object a line");
}

void add_sample(CLI::App& app, SampleCommand& sample) {
  app.add_option("--checkpoint", sample.checkpoint, "a run's folder or a .safetensors file")
      ->required();
  app.add_option("--prompt", sample.prompt, "how the text begins");
  app.add_option("--tokens", sample.tokens, "characters to write")->capture_default_str();
  app.add_option("--temperature", sample.temperature, "0: always the most probable")
      ->capture_default_str();
  app.add_option("--top-k", sample.top_k, "only among so many; 0: among all")
      ->capture_default_str();
  app.add_option("--seed", sample.seed, "of the choices")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
}

void add_info(CLI::App& app, InfoCommand& info) {
  add_settings(app, info.settings);
  add_shorthands(app, info.settings);
  CLI::Option* const checkpoint =
      app.add_option("--checkpoint", info.checkpoint, "a run's folder or a .safetensors file");
  for (CLI::Option* option : app.get_options()) {
    if (option->get_group() == settings_group) checkpoint->excludes(option);
  }
  app.add_flag("--json", info.json, "print one JSON object");
}

std::string version() {
  return fmt::format("charlm {} ({}; {})", WEFT_VERSION, hwy::TargetName(HWY_STATIC_TARGET),
                     matmul_library());
}

// Reports words that no option takes, with the nearest option.
void refuse_extras(CLI::App& command) {
  for (const std::string& word : command.remaining()) {
    const std::string name = word.substr(0, word.find('='));
    require(name.starts_with("-"), "{}: '{}' stands there without an option before it",
            command.get_name(), word);
    std::vector<std::string> known;
    for (const CLI::Option* option : command.get_options()) known.push_back(option->get_name());
    fail("{}: there is no option {}; did you mean {}? charlm {} --help lists them all",
         command.get_name(), name, nearest_name(name, known), command.get_name());
  }
}

// Exits after --help and --version.
void parse(std::vector<std::string> words, CommandLine& line) {
  CLI::App app("Language models over characters.", "charlm");
  app.set_version_flag("--version", version());
  app.require_subcommand(1);
  const auto add = [&](const char* name, const char* help) {
    CLI::App* command = app.add_subcommand(name, help);
    command->allow_extras();
    command->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    command->add_option("--threads", line.threads, "that compute; by default one a core")
        ->check(CLI::Range(1, 4096));
    return command;
  };
  add_train(*add("train", "train a model (the default)"), line.train);
  add_eval(*add("eval", "score a model on text"), line.eval);
  add_sample(*add("sample", "write text"), line.sample);
  add_info(*add("info", "list a model's parameters"), line.info);
  const auto known = {"train", "eval", "sample", "info"};
  const std::string first = words.empty() ? "" : words.front();
  if (first.empty() || (first.starts_with("-") && first != "--help" && first != "-h" &&
                        first != "--version")) {
    words.insert(words.begin(), "train");
  } else if (!first.starts_with("-")) {
    require(std::find(known.begin(), known.end(), first) != known.end(),
            "there is no command '{}'; there are {}", first,
            known_names(first, {known.begin(), known.end()}));
  }
  try {
    std::reverse(words.begin(), words.end());
    app.parse(std::move(words));
  } catch (const CLI::Error& error) {
    if (error.get_exit_code() == 0) std::exit(app.exit(error));
    fail("{}", error.what());
  }
  CLI::App* const command = app.get_subcommands().front();
  line.command = command->get_name();
  refuse_extras(*command);
}

int run(const std::vector<std::string>& words) {
  CommandLine line;
  parse(words, line);
  // A preset's values stand below what the command line says: it is read again on top of them.
  Settings& settings = line.command == "info" ? line.info.settings : line.train.settings;
  if (!settings.preset.empty()) {
    settings = preset(settings.preset);
    parse(words, line);
  }
  if (line.threads > 0) set_threads(line.threads);
  if (line.command == "eval") return run_eval(line.eval);
  if (line.command == "sample") return run_sample(line.sample);
  if (line.command == "info") return run_info(line.info);
  return run_train(line.train);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  try {
    return weft::run({argv + 1, argv + argc});
  } catch (const weft::Error& error) {
    fmt::print(stderr, "charlm: {}\n", error.what());
    return weft::bad_input;
  } catch (const std::exception& error) {
    fmt::print(stderr, "charlm: unexpected: {}\n", error.what());
    return 1;
  }
}
