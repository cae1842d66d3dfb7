// lra's subcommands.
#pragma once

#include <string>

#include "apps/lra/settings.h"

namespace weft::lra {

using TrainCommand = weft::TrainCommand<Settings>;
using InfoCommand = weft::InfoCommand<Settings>;

struct EvalCommand {
  std::string checkpoint;
  std::string data;  // empty: the model's training data
  std::string split = "test";
  std::string device = "cpu";
  bool json = false;
};

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
