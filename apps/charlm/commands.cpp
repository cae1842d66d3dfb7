#include "apps/charlm/commands.h"

#include <cstdio>

#include "apps/charlm/evaluate.h"
#include "apps/charlm/generate.h"
#include "apps/command_line/configuration.h"
#include "apps/command_line/device_option.h"

namespace weft::charlm {
namespace {

struct Scored {
  const char* windows;
  Pass pass;
  i64 characters;
  double seconds;

  double characters_a_second() const { return static_cast<double>(characters) / seconds; }
};

void print_score(const Scored& scored, const EvalCommand& command, const Model& model,
                 const Text& text) {
  const double score = bits(scored.pass.cross_entropy);
  if (!command.json) {
    fmt::print(
        "{} split, {} windows: {:.6f} bits per character over {} characters, {} a second\n",
        command.split, scored.windows, score, scored.characters,
        short_number(scored.characters_a_second()));
    return;
  }
  Json line = {{"checkpoint", command.checkpoint},
               {"attention", model.settings.model.attention},
               {"data", text.source},
               {"split", command.split},
               {"windows", scored.windows},
               {"parameters", parameter_count(*model.network)},
               {"characters", scored.characters},
               {"loss", scored.pass.loss},
               {"bits_per_character", score},
               {"tokens_per_second", scored.characters_a_second()}};
  if (text.grammar) line["entropy"] = text.grammar->entropy();
  print_json(line);
}

// The input of --map: --text, or the first characters of the split.
MapText map_text(const EvalCommand& command, const Model& model, const std::string& source,
                 Ids split) {
  const std::string& own = command.map.text;
  const std::vector<CharacterId> given = model.vocabulary.encode(own, "--text");
  const Ids ids = own.empty() ? first_tokens(split, *model.network) : Ids(given);
  MapText text{
      .ids = {ids.begin(), ids.end()}, .tokens = {}, .source = own.empty() ? source : "--text"};
  for (const i64 id : text.ids) text.tokens.push_back(model.vocabulary.character(id));
  return text;
}

}  // namespace

int run_eval(const EvalCommand& command) {
  check(command.map);
  require(command.map.place.empty() || !command.paper, "--map excludes --paper: it does not score");
  if (!command.attention.empty()) check_causal(command.attention, command.allow_leaky);
  const Device device = device_named(command.device);
  const Model model = read_model(command.checkpoint, command.attention);
  move_to(*model.network, device);
  const Settings& s = model.settings;
  check_causal(s.model.attention, command.allow_leaky);
  if (!command.map.text.empty()) {
    return write_map(command.map, *model.network, map_text(command, model, "", {}));
  }
  const std::string data = text_to_score(command, s.data);
  const Text text = load_text(data, model.vocabulary);
  const Parts parts = split_text(text, parse_split(s.split), s.model.length);
  const Ids ids = parts.named(command.split);
  if (!command.map.place.empty()) {
    const std::string source = fmt::format("the {} split of {}", command.split, text.source);
    return write_map(command.map, *model.network, map_text(command, model, source, ids));
  }
  Progress progress;
  const Advance advance = [&](double share) {
    if (!command.json) progress.update(fmt::format("{} {:.0f} %", command.split, 100 * share));
  };
  const Stopwatch watch;
  Scored scored{"consecutive", pass_over_all(*model.network, ids, s.at_once(), advance),
                std::ssize(ids) - 1, 0};
  scored.seconds = watch.seconds();
  progress.clear();
  print_score(scored, command, model, text);
  if (!command.paper) return 0;
  const Purpose purpose = command.split == "train"        ? Purpose::train
                          : command.split == "validation" ? Purpose::validation
                                                         : Purpose::test;
  const i64 batches = command.split == "test" ? s.test_batches : s.validation_batches;
  const Stopwatch again;
  scored.windows = "random";
  scored.pass = measure_random(*model.network, ids, purpose, command.seed.value_or(s.seed), batches,
                               s, advance);
  scored.characters = batches * s.batch * s.model.length;
  scored.seconds = again.seconds();
  progress.clear();
  print_score(scored, command, model, text);
  return 0;
}

int run_sample(const SampleCommand& command) {
  const Model model = read_model(command.checkpoint);
  const auto write = [&](const SamplingOptions& options, const SampleWriter::Say& say) {
    bool begun = false;
    const auto character = [&](const std::string& more) {
      if (!std::exchange(begun, true)) say(command.prompt);
      say(more);
    };
    write_text(model, command.prompt, command.tokens, options, character);
    if (!begun) say(command.prompt);
  };
  const i64 prompt = std::ssize(read_before(model, command.prompt));
  return write_samples(command, {"charlm", "characters", *model.network, prompt, write});
}

int run_info(const InfoCommand& command) {
  const auto fresh = [&] {
    const Settings& s = command.settings;
    check(s);
    return new_model(s, load_text(s.data, s.vocabulary));
  };
  const Model model = command.checkpoint.empty() ? fresh() : read_model(command.checkpoint);
  return print_information(model, command.json);
}

int run_export(const ExportCommand& command) {
  const Model model = read_model(command.checkpoint);
  return export_model(command, *model.network, model.tensors(), metadata_of(model));
}

}  // namespace weft::charlm
