// wordlm's subcommands.
#pragma once

#include "apps/language/commands.h"
#include "apps/wordlm/settings.h"

namespace weft::wordlm {

using TrainCommand = LanguageTrainCommand<Settings>;
using EvalCommand = LanguageEvalCommand;
using InfoCommand = weft::InfoCommand<Settings>;

// Each returns the exit status; run_app turns an Error into status 2.
int run_train(const TrainCommand& command);
int run_eval(const EvalCommand& command);
int run_sample(const SampleCommand& command);
int run_info(const InfoCommand& command);
int run_export(const ExportCommand& command);

}  // namespace weft::wordlm
