#include <optional>

#include "apps/charlm/commands.h"
#include "apps/charlm/evaluate.h"
#include "apps/charlm/generate.h"
#include "apps/charlm/task.h"
#include "apps/command_line/config_file.h"
#include "apps/command_line/configuration.h"
#include "apps/command_line/device_option.h"
#include "apps/training/run.h"

namespace weft::charlm {
namespace {

constexpr i64 sample_characters = 400;

void describe(const Model& model, const Text& text, const Parts& parts, const RunOptions& run,
              Progress& progress) {
  const Settings& s = model.settings;
  progress.print(fmt::format(
      "data   {}: {} characters, {} different ({}); {} to train, {} to validate, {} to test",
      text.source, grouped(static_cast<i64>(text.ids.size())), text.vocabulary.size(), s.vocabulary,
      grouped(static_cast<i64>(parts.train.size())),
      grouped(static_cast<i64>(parts.validation.size())),
      grouped(static_cast<i64>(parts.test.size()))));
  const std::string name =
      s.preset.empty() ? ""
                       : name_of_preset(configuration_of(s), configuration_of(preset(s.preset)),
                                        network_setting_names(), progress);
  progress.print(description(name, s.model, parameter_count(*model.network)));
  const auto drawn = static_cast<double>(s.total_steps() * s.batch * s.model.length);
  const double passes = drawn / static_cast<double>(parts.train.size());
  progress.print(fmt::format(
      "train  {} steps of {} windows, {} a round, {:.{}f} times the training text, {}, learning "
      "rate {:g} ({}), seed {}",
      grouped(s.total_steps()), s.batch, grouped(s.epoch_steps), passes, passes < 10 ? 2 : 0,
      s.optimizer, s.lr, s.schedule, s.seed));
  print_precision(s.model.precision, run, progress);
  progress.print(kept(run));
}

// Scores the model on the test part: consecutive windows and, without a memory, random ones too.
std::vector<Figure> score_test(const Model& model, const Parts& parts, const Text& text,
                               const Advance& advance, RunFolder& folder, Progress& progress) {
  const Settings& s = model.settings;
  const Pass all = pass_over_all(*model.network, parts.test, s.at_once(), advance);
  const bool goes_on = s.model.memory > 0;
  const double score = bits(all.cross_entropy);
  Json line = {{"kind", "test"},
               {"windows", "consecutive"},
               {"loss", all.loss},
               {"bits_per_character", score}};
  std::string others = ", each with a memory of those before";
  std::optional<Pass> random;  // a random window has no memory of the text before it
  if (!goes_on) {
    random = measure_random(*model.network, parts.test, Purpose::test, s.seed, s.test_batches, s,
                            advance);
    others = fmt::format(", {:.4f} bpc over {} random ones", bits(random->cross_entropy),
                         grouped(s.test_batches * s.batch));
  }
  progress.print(fmt::format("test   {:.4f} bpc over every character in consecutive windows{}",
                             score, others));
  if (text.grammar && goes_on) {
    line["entropy"] = text.grammar->entropy();
    progress.print(
        fmt::format("       {:.4f} bpc is the entropy of the text; the model is {:.4f} above",
                    text.grammar->entropy(), score - text.grammar->entropy()));
  } else if (text.grammar) {
    const double least = best_possible(text, parts.test, s.model.length);
    line["entropy"] = text.grammar->entropy();
    line["best_possible"] = least;
    progress.print(
        fmt::format("       {:.4f} bpc is the entropy of the text; {:.4f} bpc is the best possible "
                    "in windows of {} without earlier context; the model is {:.4f} above",
                    text.grammar->entropy(), least, s.model.length, score - least));
  }
  folder.log(line);
  if (random) {
    folder.log({{"kind", "test"},
                {"windows", "random"},
                {"loss", random->loss},
                {"bits_per_character", bits(random->cross_entropy)}});
  }
  return {{"bits_per_character", "bpc", score}};
}

Trained train_once(const TrainCommand& command) {
  const Device device = device_of(command.run, command.settings.model.precision);
  const Text text = load_text(command.settings.data, command.settings.vocabulary);
  const Model model = new_model(command.settings, text);
  const Settings& settings = model.settings;
  const Parts parts = split_text(text, parse_split(settings.split), settings.model.length);
  move_to(*model.network, device);
  const Task task = training_task(model, parts);
  Progress progress(command.run.silent());
  const auto folder = run_folder(command.run);
  folder->show_columns(
      metric_columns(task.round, task.score.key, {"windows", "entropy", "best_possible"}));
  const TrainOptions options = train_options(settings, settings.epoch_steps, command.run);
  if (const auto ended = ended_before(*folder, task, options, progress)) return *ended;
  describe(model, text, parts, command.run, progress);
  const auto score = [&](const TrainResult& result, const Advance& advance) {
    progress.print(fmt::format("best   round {}: validation {:.4f} bpc", result.best_epoch,
                               bits(result.best.cross_entropy)));
    const std::vector<Figure> figures = score_test(model, parts, text, advance, *folder, progress);
    move_to(*model.network, Device{});  // decoding one position at a time is as fast on the CPU
    print_sample(settings.model.attention, *folder, progress, [&] {
      std::string sample;
      write_text(model, "", sample_characters, {.seed = settings.seed},
                 [&](const std::string& character) { sample += character; });
      return sample;
    });
    return figures;
  };
  return run_training(task, options, settings, command.run, *folder, progress, score);
}

}  // namespace

int run_train(const TrainCommand& command) {
  check(command.settings);
  check_together(command.settings);
  check_encoding(command.settings.model);
  check_causal(command.settings.model.attention, allows_leaky(command));
  if (command.run.print_config) return print_config(command);
  return train_replicas(command, train_once);
}

}  // namespace weft::charlm
