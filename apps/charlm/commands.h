// charlm's subcommands.
#pragma once

#include <optional>

#include "apps/charlm/settings.h"
#include "apps/language/commands.h"

namespace weft::charlm {

using TrainCommand = LanguageTrainCommand<Settings>;
using InfoCommand = weft::InfoCommand<Settings>;

struct EvalCommand : LanguageEvalCommand {
  bool paper = false;                 // also score random windows, as many as the settings say
  std::optional<std::uint64_t> seed;  // of the random windows; by default the model's
};

// Each returns the exit status; run_app turns an Error into status 2.
int run_train(const TrainCommand& command);
int run_eval(const EvalCommand& command);
int run_sample(const SampleCommand& command);
int run_info(const InfoCommand& command);
int run_export(const ExportCommand& command);

}  // namespace weft::charlm
