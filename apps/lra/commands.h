// lra's subcommands.
#pragma once

#include <string>

#include "apps/lra/settings.h"

namespace weft::lra {

using TrainCommand = weft::TrainCommand<Settings>;
using InfoCommand = weft::InfoCommand<Settings>;

struct EvalCommand {
  std::string checkpoint;
  std::string data;  // empty: what the model was trained on
  std::string split = "test";
  std::string device = "cpu";
  bool json = false;
};

struct DataCommand {
  Settings settings;
  std::string out;  // folder for the files; empty: facts alone
  bool json = false;
};

// Each returns the exit status; Error stands for 2.
int run_train(const TrainCommand& command);
int run_eval(const EvalCommand& command);
int run_data(const DataCommand& command);
int run_info(const InfoCommand& command);

}  // namespace weft::lra
