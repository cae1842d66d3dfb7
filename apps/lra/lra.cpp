// lra: classes of long sequences, the tasks of Long Range Arena.
//
//     lra [train] [options]  trains
//     lra eval               scores a checkpoint
//     lra data               what a task's data are, and their files
//     lra info               lists a model's parameters
//
// Exit status: as charlm's.
#include "apps/lra/commands.h"
#include "apps/training/read_commands.h"

namespace weft::lra {
namespace {

// The command line is parsed into these.
struct Commands {
  TrainCommand train;
  EvalCommand eval;
  DataCommand data;
  InfoCommand info;
};

void add_data(const Options& app, DataCommand& data) {
  app.add_option("--task", data.settings.task, "listops, image, pathfinder, text or retrieval")
      .show_default();
  app.add_option("--data", data.settings.data, "builtin, or the folder of the released files")
      .show_default();
  app.add_option("--data-seed", data.settings.data_seed, "seed of the built-in data")
      .show_default();
  app.add_option("--examples", data.settings.examples,
                 "number of training sequences of the built-in data; 0: as published")
      .show_default();
  app.add_option("--held-out", data.settings.held_out,
                 "number of validation sequences, and of test sequences; 0: as published")
      .show_default();
  app.add_option(
      "--out", data.out,
      "folder for the data: ListOps in the layout of the released files, sheets of pictures");
  app.add_flag("--json", data.json, "print one JSON object");
}

const CommandLine::Names names{"lra",
                               "Classes of long sequences: the tasks of Long Range Arena.",
                               {"train", "eval", "data", "info"}};

void add_commands(CommandLine& line, Commands& commands) {
  const Presets choices{"a row of the table; other options modify it", presets()};
  add_train(line.add("train", "train a model (the default)"), commands.train, choices);
  add_eval(line.add("eval", "score a model"), commands.eval, "sequences");
  add_data(line.add("data", "describe a task's data"), commands.data);
  add_info(line.add("info", "list a model's parameters"), commands.info, choices);
  line.show_presets(choices.names);
}

int run(const std::vector<std::string>& words) {
  Commands commands;
  const std::string command = CommandReader(names, add_commands, preset).read(words, commands);
  if (command == "eval") return run_eval(commands.eval);
  if (command == "data") return run_data(commands.data);
  if (command == "info") return run_info(commands.info);
  return run_train(commands.train);
}

}  // namespace
}  // namespace weft::lra

int main(int argc, char** argv) { return weft::run_app("lra", weft::lra::run, argc, argv); }
