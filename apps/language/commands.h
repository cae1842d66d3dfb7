// What the commands of apps that model language are told, and what they say alike.
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
  MapCommand map;
};

struct SampleCommand {
  std::string checkpoint = {};
  std::string prompt = {};
  i64 tokens = 0;
  i64 samples = 1;
  SamplingOptions options = {};
};
void check(const SampleCommand& command);

// `export` of a language model; the example is two windows of tokens drawn at random.
int export_model(const ExportCommand& command, const UniversalTransformer& network,
                 const std::vector<NamedTensor>& tensors,
                 const std::map<std::string, std::string>& metadata);

// The last line of a training: "sample " and the text of write(), which TensorBoard shows, too; or
// why there is none.
void print_sample(const std::string& attention, RunFolder& folder, Progress& progress,
                  const std::function<std::string()>& write);

// `sample`: has write(options, say, restarted) say each text, below a heading where there are
// several, on a terminal as printable.h has it, elsewhere every byte as it is. Says on stderr how
// fast that was, and once that a model of `length` positions started again; `unit` is what it
// counts ("characters"). Returns the exit status.
struct SampleWriter {
  using Say = std::function<void(std::string_view more)>;
  const char *app, *unit;
  i64 length;
  std::function<void(const SamplingOptions& options, const Say& say,
                     const std::function<void()>& restarted)>
      write;
};
int write_samples(const SampleCommand& command, const SampleWriter& writer);

}  // namespace weft
