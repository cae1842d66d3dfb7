// lra's subcommands.
#pragma once

#include <string>

#include "apps/command_line/classifier_commands.h"
#include "apps/lra/settings.h"

namespace weft::lra {

using TrainCommand = weft::TrainCommand<Settings>;
using InfoCommand = weft::InfoCommand<Settings>;
using EvalCommand = ClassifierEvalCommand;

struct DataCommand {
  Settings settings;
  std::string out;  // folder for the files; empty: print statistics only
  bool json = false;
};

// Each returns the exit status; run_app turns an Error into status 2.
int run_train(const TrainCommand& command);
int run_eval(const EvalCommand& command);
int run_data(const DataCommand& command);
int run_info(const InfoCommand& command);

}  // namespace weft::lra
