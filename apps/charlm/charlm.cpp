// charlm: language models over characters.
//
//     charlm [train] [options]   trains; without options on the built-in corpus, in about a minute
//     charlm eval                scores a checkpoint
//     charlm sample              writes text
//     charlm info                lists a model's parameters
//
// Exit status: 0; 1 where the program itself is wrong; 2 for bad input, with one line on stderr;
// 4 where training left the finite numbers; 128 + the number of the signal that ended it.
#include "apps/charlm/commands.h"
#include "apps/common/command_line.h"

namespace weft::charlm {
namespace {

constexpr const char* preset_help =
    "a model of the agglomerative-attention paper; other options change it";

// The command line into these; nothing is opened or checked beyond the syntax.
struct Commands {
  TrainCommand train;
  EvalCommand eval;
  SampleCommand sample;
  InfoCommand info;
};

void add_train(CLI::App& app, TrainCommand& train) {
  add_settings(app, train.settings, preset_help);
  add_shorthands(app, train.settings.model, train.settings);
  app.add_flag("--allow-leaky", train.allow_leaky,
               "also an attention that is not strictly causal");
  add_run_options(app, train.run);
}

void add_eval(CLI::App& app, EvalCommand& eval) {
  app.add_option("--checkpoint", eval.checkpoint, checkpoint_help)->required();
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

void add_info(CLI::App& app, InfoCommand& info) {
  add_settings(app, info.settings, preset_help);
  add_shorthands(app, info.settings.model, info.settings);
  add_checkpoint_instead(app, info.checkpoint);
  app.add_flag("--json", info.json, "print one JSON object");
}

// Reads the line; returns the command.
std::string parse(const std::vector<std::string>& words, Commands& commands) {
  CommandLine line("charlm", "Language models over characters.",
                   {"train", "eval", "sample", "info"});
  add_train(line.add("train", "train a model (the default)"), commands.train);
  add_eval(line.add("eval", "score a model on text"), commands.eval);
  SampleCommand& sample = commands.sample;
  add_sample_options(line.add("sample", "write text"), sample.checkpoint, sample.prompt,
                     sample.tokens, sample.options);
  add_info(line.add("info", "list a model's parameters"), commands.info);
  return line.parse(words);
}

int run(const std::vector<std::string>& words) {
  Commands commands;
  const std::string command = read_commands(words, commands, parse, preset);
  if (command == "eval") return run_eval(commands.eval);
  if (command == "sample") return run_sample(commands.sample);
  if (command == "info") return run_info(commands.info);
  return run_train(commands.train);
}

}  // namespace
}  // namespace weft::charlm

int main(int argc, char** argv) { return weft::run_app("charlm", weft::charlm::run, argc, argv); }
