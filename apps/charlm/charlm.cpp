// charlm: language models over characters.
//
//     charlm [train] [options]   trains; without options on the built-in corpus, in about a minute
//     charlm eval                scores a checkpoint
//     charlm sample              writes text
//     charlm info                lists a model's parameters
//     charlm export              writes the weights for other programs
//
// Exit status: 0 on success; 1 for a bug in the program; 2 for bad input, with one line on stderr;
// 4 if training diverged (a value that is not finite); 128 + the signal's number if a signal ended
// it.
#include "apps/charlm/commands.h"
#include "apps/language/options.h"
#include "apps/training/read_commands.h"

namespace weft::charlm {
namespace {

// The command line is parsed into these.
struct Commands {
  TrainCommand train;
  EvalCommand eval;
  SampleCommand sample{.tokens = 500};
  InfoCommand info;
  ExportCommand exported;
};

const CommandLine::Names names{
    "charlm", "Language models over characters.", {"train", "eval", "sample", "info", "export"}};

void add_commands(CommandLine& line, Commands& commands) {
  add_train(line.add("train", "train a model (the default)"), commands.train, presets());
  const Options eval = line.add("eval", "score a model on text");
  add_eval(eval, commands.eval);
  const Option paper =
      eval.add_flag("--paper", commands.eval.paper, "also score random windows, as the paper does");
  eval.add_option("--seed", commands.eval.seed, "seed of the random windows; default: the model's")
      .needs(paper);
  add_sample(line.add("sample", "write text"), commands.sample);
  add_info(line.add("info", "list a model's parameters"), commands.info, presets());
  add_export(line.add("export", "write the weights for other programs"), commands.exported);
  line.show_presets(presets());
}

int run(const std::vector<std::string>& words) {
  Commands commands;
  const std::string command = CommandReader(names, add_commands, preset).read(words, commands);
  if (command == "eval") return run_eval(commands.eval);
  if (command == "sample") return run_sample(commands.sample);
  if (command == "info") return run_info(commands.info);
  if (command == "export") return run_export(commands.exported);
  return run_train(commands.train);
}

}  // namespace
}  // namespace weft::charlm

int main(int argc, char** argv) { return weft::run_app("charlm", weft::charlm::run, argc, argv); }
