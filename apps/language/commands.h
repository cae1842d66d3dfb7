// Options and shared output of the language models' commands.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "apps/command_line/export.h"
#include "apps/language/map.h"
#include "apps/language/model.h"
#include "apps/training/train.h"

namespace weft {

template <class Settings>
struct LanguageTrainCommand : TrainCommand<Settings> {
  bool allow_leaky = false;  // accept attention that is not strictly causal
};
// A resumed run needs no --allow-leaky: it had the option when it started.
template <class Settings>
bool allows_leaky(const LanguageTrainCommand<Settings>& command) {
  return command.allow_leaky || command.run.resume;
}

struct LanguageEvalCommand {
  std::string checkpoint;
  std::string attention;  // replaces the model's own; empty: the model's own
  std::string data;       // empty: the model's training data
  std::string split = "test";
  bool allow_leaky = false;
  std::string device = "cpu";
  bool json = false;
  MapCommand map;
};

// --data, or the data that the model was trained with; throws if those are not found.
std::string text_to_score(const LanguageEvalCommand& command, const std::string& trained_with);

struct SampleCommand {
  std::string checkpoint = {};
  std::string prompt = {};
  i64 tokens = 0;
  i64 samples = 1;
  SamplingOptions options = {};
};
void check(const SampleCommand& command);

// `export` of a language model. The example input is two windows of random tokens.
int export_model(const ExportCommand& command, const UniversalTransformer& network,
                 const std::vector<NamedTensor>& tensors,
                 const std::map<std::string, std::string>& metadata);

// Prints the last line of a training: "sample " and the text of write(), which TensorBoard shows
// too; or the reason why there is no sample.
void print_sample(const std::string& attention, RunFolder& folder, Progress& progress,
                  const std::function<std::string()>& write);

// `sample`: calls write(options, say) for each text, under a heading if there are several. On a
// terminal text is escaped (printable.h), elsewhere bytes are written unchanged. Prints the speed
// to stderr and, before the texts, a warning if the model will restart. `unit` names tokens
// ("characters"). Returns the exit status.
struct SampleWriter {
  using Say = std::function<void(std::string_view more)>;
  const char *app, *unit;
  const UniversalTransformer& network;
  i64 prompt;  // number of tokens before the first that is drawn
  std::function<void(const SamplingOptions& options, const Say& say)> write;
};
int write_samples(const SampleCommand& command, const SampleWriter& writer);

}  // namespace weft
