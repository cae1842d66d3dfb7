// wordlm: language models over word pieces.
//
//     wordlm [train] [options]   trains; without options on the built-in corpus, in about a minute
//     wordlm eval                scores a checkpoint
//     wordlm sample              writes text
//     wordlm info                lists a model's parameters
//     wordlm export              writes the weights for other programs
//
// Exit status: as charlm's.
#include "apps/language/options.h"
#include "apps/training/read_commands.h"
#include "apps/wordlm/commands.h"

namespace weft::wordlm {
namespace {

// The command line is parsed into these.
struct Commands {
  TrainCommand train;
  EvalCommand eval;
  SampleCommand sample{.tokens = 200};
  InfoCommand info;
  ExportCommand exported;
};

const CommandLine::Names names{
    "wordlm", "Language models over word pieces.", {"train", "eval", "sample", "info", "export"}};

void add_commands(CommandLine& line, Commands& commands) {
  add_train(line.add("train", "train a model (the default)"), commands.train, presets());
  add_eval(line.add("eval", "score a model on text"), commands.eval);
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
}  // namespace weft::wordlm

int main(int argc, char** argv) { return weft::run_app("wordlm", weft::wordlm::run, argc, argv); }
