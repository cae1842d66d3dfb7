// What the commands of apps that model language are told, and what they say alike.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "apps/common/export.h"
#include "apps/common/language_model.h"

namespace weft {

template <class Settings>
struct LanguageTrainCommand : TrainCommand<Settings> {
  bool allow_leaky = false;  // train also where the future reaches a prediction
};
// What is resumed was allowed when it began.
template <class Settings>
bool allows_leaky(const LanguageTrainCommand<Settings>& command) {
  return command.allow_leaky || command.run.resume;
}

struct LanguageEvalCommand {
  std::string checkpoint;
  std::string attention;  // instead of the model's own; empty: its own
  std::string data;       // empty: what the model was trained on
  std::string split = "test";
  bool allow_leaky = false;
  std::string device = "cpu";
  bool json = false;
};

struct SampleCommand {
  std::string checkpoint = {};
  std::string prompt = {};
  std::int64_t tokens = 0;
  SamplingOptions options = {};
};
void check(const SampleCommand& command);

// `export` of a language model; the example is two windows of tokens drawn at random.
int export_model(const ExportCommand& command, const UniversalTransformer& network,
                 const std::vector<NamedParameter>& parameters,
                 const std::map<std::string, std::string>& metadata);

// The last line of a training: "sample " and the text of write(), or why there is none.
void print_sample(const std::string& attention, Progress& progress,
                  const std::function<std::string()>& write);

// What `sample` says on stderr: that a model of so many positions starts again, where `unit` is
// what it counts ("characters"), and how fast it was.
void say_restarted(const char* app, std::int64_t length, const char* unit);
void say_rate(const char* app, std::int64_t tokens, double seconds);

}  // namespace weft
