#include <optional>

#include <nlohmann/json.hpp>

#include "apps/charlm/commands.h"
#include "apps/charlm/evaluate.h"
#include "apps/charlm/generate.h"
#include "apps/common/device_option.h"
#include "nn/schedule.h"
#include "ops/attention/spec.h"

namespace weft {
namespace {

constexpr int not_finite_status = 4;
constexpr std::int64_t sample_characters = 400;

// 1234567 as "1,234,567".
std::string grouped(std::int64_t value) {
  std::string text = std::to_string(value);
  for (auto i = static_cast<std::ptrdiff_t>(text.size()) - 3; i > 0; i -= 3) {
    text.insert(static_cast<std::size_t>(i), 1, ',');
  }
  return text;
}

void describe(const Model& model, const Text& text, const Parts& parts,
              const TrainCommand& command, Progress& progress) {
  const Settings& s = model.settings;
  progress.print(fmt::format(
      "data   {}: {} characters, vocabulary {}; {} to train, {} to validate, {} to test",
      text.source, grouped(static_cast<std::int64_t>(text.ids.size())), s.vocabulary,
      grouped(static_cast<std::int64_t>(parts.train.size())),
      grouped(static_cast<std::int64_t>(parts.validation.size())),
      grouped(static_cast<std::int64_t>(parts.test.size()))));
  progress.print(fmt::format(
      "model  {}{}: {} attention, {}, width {}, depth {}, heads {}, length {}; {} parameters",
      s.preset, s.preset.empty() ? "universal transformer" : "", s.model.attention,
      s.model.encoding == "conv" ? "causal convolution" : "trained positions", s.model.width,
      s.model.depth, s.model.heads, s.model.length, grouped(parameter_count(*model.network))));
  progress.print(fmt::format("train  {} steps of {} windows, {}, learning rate {:g} ({}), seed {}",
                             grouped(s.total_steps()), s.batch, s.optimizer, s.lr, s.schedule,
                             s.seed));
  if (command.out.empty()) {
    progress.print("keep   nothing; --out DIR keeps the model and its log");
  } else {
    progress.print(fmt::format("keep   in {}", command.out));
  }
}

TrainOptions train_options(const Settings& s, const TrainCommand& command) {
  const Schedule schedule{.kind = schedule_kind(s.schedule), .rate = s.lr, .warmup = s.warmup,
                          .steps = s.total_steps()};
  TrainOptions options;
  options.steps = s.total_steps();
  options.epoch_steps = s.epoch_steps;
  options.patience = s.patience;
  options.learning_rate = [schedule](std::int64_t step) { return schedule.at(step - 1); };
  if (s.clip > 0) options.clip = s.clip;
  options.report_steps = command.report_steps;
  options.graph = command.graph;
  return options;
}

// Scores the model on the test part, in both ways.
void score_test(const Model& model, const Parts& parts, const Text& text, RunFolder& folder,
                Progress& progress) {
  const Settings& s = model.settings;
  const Advance advance = [&](double share) {
    progress.update(fmt::format("test {:.0f} %", 100 * share));
  };
  const Measure all = measure_all(*model.network, parts.test, s.batch, advance);
  const Measure random = measure_random(*model.network, parts.test, Purpose::test, s.seed,
                                        s.test_batches, s.batch, advance);
  const double score = bits(all.cross_entropy);
  nlohmann::ordered_json line = {{"kind", "test"}, {"windows", "consecutive"}, {"loss", all.loss},
                                 {"bits_per_character", score}};
  progress.print(fmt::format(
      "test   {:.4f} bpc over every character in consecutive windows, {:.4f} bpc over {} random "
      "ones", score, bits(random.cross_entropy), grouped(s.test_batches * s.batch)));
  if (text.grammar) {
    const double least = best_possible(*text.grammar, text.vocabulary, parts.test, s.model.length);
    line["entropy"] = text.grammar->entropy();
    line["best_possible"] = least;
    progress.print(fmt::format(
        "       {:.4f} bpc is the entropy of the text; {:.4f} bpc is the best possible in windows "
        "of {}, whose past is cut off; the model is {:.4f} above", text.grammar->entropy(), least,
        s.model.length, score - least));
  }
  folder.log(line);
  folder.log({{"kind", "test"}, {"windows", "random"}, {"loss", random.loss},
              {"bits_per_character", bits(random.cross_entropy)}});
}

void print_sample(const Model& model, Progress& progress) {
  const AttentionSpec attention(model.settings.model.attention);
  if (attention.mechanism().decode == nullptr) {
    progress.print(fmt::format("sample none: {} cannot decode step by step", attention.text()));
    return;
  }
  std::string sample;
  SamplingOptions options;
  options.seed = model.settings.seed;
  write_text(model, "", sample_characters, options, [&](char c) { sample += c; }, [] {});
  progress.print("sample " + sample);
}

int status_of(const TrainResult& result, const TrainCommand& command, Progress& progress) {
  const std::string kept = command.out.empty() ? "" : "; the last good model is in " + command.out;
  if (result.skipped > 0) {
    progress.print(fmt::format("{} steps were skipped: their loss or gradient was not finite",
                               result.skipped));
  }
  if (result.ending == Ending::not_finite) {
    progress.print(fmt::format("stopped at step {}: the training left the finite numbers{}; try a "
                               "smaller --lr, or --clip 1", result.steps, kept));
    return not_finite_status;
  }
  if (result.ending == Ending::interrupted) {
    progress.print(fmt::format("interrupted after step {}{}", result.steps,
                               command.out.empty() ? "" : "; the model is in " + command.out));
    return 128 + result.signal;
  }
  if (result.ending == Ending::out_of_patience) {
    progress.print(
        fmt::format("no better validation loss in {} epochs", command.settings.patience));
  }
  return 0;
}

}  // namespace

int run_train(const TrainCommand& command) {
  check(command.settings);
  check_causal(command.settings.model.attention, command.allow_leaky);
  require(command.report_steps > 0, "--report-steps: wanted 1 or more, got {}",
          command.report_steps);
  const Device device = device_named(command.device);
  Settings settings = command.settings;
  const Text text = load_text(settings.data, settings.vocabulary);
  settings.vocabulary = name_of(text.vocabulary);
  const Parts parts = split_text(text, parse_split(settings.split), settings.model.length);
  const Model model = new_model(settings);
  move_to(*model.network, device);
  const Task task = training_task(model, parts);
  const auto optimizer = make_optimizer(settings.optimizer, task.parameters);
  Progress progress(command.quiet);
  std::optional<RunFolder> folder;
  if (command.out.empty()) {
    folder.emplace();
  } else {
    folder.emplace(command.out, command.force);
  }
  describe(model, text, parts, command, progress);
  const TrainResult result = train(task, train_options(settings, command), *optimizer, *folder,
                                   progress);
  const int status = status_of(result, command, progress);
  if (status != 0) return status;
  progress.print(fmt::format("best   epoch {}: validation {:.4f} bpc", result.best_epoch,
                             bits(result.best.cross_entropy)));
  score_test(model, parts, text, *folder, progress);
  move_to(*model.network, Device{});  // one position at a time: the CPU is at least as fast
  print_sample(model, progress);
  return 0;
}

}  // namespace weft
