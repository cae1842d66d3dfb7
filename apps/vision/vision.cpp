// vision: classes of small pictures, by vision transformers.
//
//     vision [train] [options]  trains; without options on the built-in pictures, in about a minute
//     vision eval               scores a checkpoint
//     vision predict IMAGE…     classifies PNG pictures
//     vision rank MODEL…        computes singular spectra of layer outputs
//     vision info               lists a model's parameters
//     vision export             writes the weights for other programs
//
// Exit status: as charlm's.
#include "apps/training/read_commands.h"
#include "apps/vision/commands.h"

namespace weft::vision {
namespace {

// The command line is parsed into these.
struct Commands {
  TrainCommand train;
  EvalCommand eval;
  PredictCommand predict;
  RankCommand rank;
  InfoCommand info;
  ExportCommand exported;
};

void add_predict(const Options& app, PredictCommand& predict) {
  app.add_option("--checkpoint", predict.checkpoint, checkpoint_help).required();
  app.add_option("images", predict.images, "PNG files").required();
  app.add_flag("--json", predict.json, "print one JSON object per line");
}

void add_rank(const Options& app, RankCommand& rank) {
  app.add_option("models", rank.models, "checkpoints, as [NAME=]PATH").required();
  app.add_option("--data", rank.data, "pictures; default: those of training");
  app.add_option("--pictures", rank.pictures, "number of test pictures to average over")
      .show_default();
  app.add_option("--out", rank.out, "a JSON file for the spectra; bench/plot spectra draws it");
}

const CommandLine::Names names{"vision",
                               "Classes of small pictures, by vision transformers.",
                               {"train", "eval", "predict", "rank", "info", "export"}};

void add_commands(CommandLine& line, Commands& commands) {
  const Presets choices{"a model of the CSP paper; other options modify it", presets()};
  add_train(line.add("train", "train a model (the default)"), commands.train, choices);
  add_eval(line.add("eval", "score a model on pictures"), commands.eval, "pictures");
  add_predict(line.add("predict", "classify pictures"), commands.predict);
  add_rank(line.add("rank", "singular spectra of layer outputs"), commands.rank);
  add_info(line.add("info", "list a model's parameters"), commands.info, choices);
  add_export(line.add("export", "write the weights for other programs"), commands.exported);
  line.show_presets(choices.names);
}

int run(const std::vector<std::string>& words) {
  Commands commands;
  const std::string command = CommandReader(names, add_commands, preset).read(words, commands);
  if (command == "eval") return run_eval(commands.eval);
  if (command == "predict") return run_predict(commands.predict);
  if (command == "rank") return run_rank(commands.rank);
  if (command == "info") return run_info(commands.info);
  if (command == "export") return run_export(commands.exported);
  return run_train(commands.train);
}

}  // namespace
}  // namespace weft::vision

int main(int argc, char** argv) { return weft::run_app("vision", weft::vision::run, argc, argv); }
