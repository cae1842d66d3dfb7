// wordlm's subcommands.
#pragma once

#include <string>

#include "apps/wordlm/settings.h"

namespace weft::wordlm {

struct TrainCommand {
  Settings settings;
  RunOptions run;
  bool allow_leaky = false;  // train also where the future reaches a prediction
};

struct EvalCommand {
  std::string checkpoint;
  std::string attention;  // instead of the model's own; empty: its own
  std::string data;       // empty: what the model was trained on
  std::string split = "test";
  bool allow_leaky = false;
  std::string device = "cpu";
  bool json = false;
};

struct SampleCommand {
  std::string checkpoint;
  std::string prompt;
  std::int64_t tokens = 200;
  SamplingOptions options;
};

struct InfoCommand {
  Settings settings;
  std::string checkpoint;  // empty: a new model of these settings
  bool json = false;
};

// Each returns the exit status; Error stands for 2.
int run_train(const TrainCommand& command);
int run_eval(const EvalCommand& command);
int run_sample(const SampleCommand& command);
int run_info(const InfoCommand& command);

}  // namespace weft::wordlm
