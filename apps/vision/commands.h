// vision's subcommands.
#pragma once

#include <string>
#include <vector>

#include "apps/command_line/classifier_commands.h"
#include "apps/command_line/export.h"
#include "apps/vision/settings.h"

namespace weft::vision {

using TrainCommand = weft::TrainCommand<Settings>;
using InfoCommand = weft::InfoCommand<Settings>;
using EvalCommand = ClassifierEvalCommand;

struct PredictCommand {
  std::string checkpoint;
  std::vector<std::string> images;  // PNG files
  bool json = false;
};

struct RankCommand {
  std::vector<std::string> models;  // [NAME=]checkpoint
  std::string data;                 // empty: the first model's training data
  i64 pictures = 16;
  std::string out;  // a JSON file; empty: no file
};

// Each returns the exit status; run_app turns an Error into status 2.
int run_train(const TrainCommand& command);
int run_eval(const EvalCommand& command);
int run_predict(const PredictCommand& command);
int run_rank(const RankCommand& command);
int run_info(const InfoCommand& command);
int run_export(const ExportCommand& command);

}  // namespace weft::vision
