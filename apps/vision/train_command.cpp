#include <map>

#include "apps/command_line/config_file.h"
#include "apps/command_line/configuration.h"
#include "apps/command_line/device_option.h"
#include "apps/training/run.h"
#include "apps/vision/commands.h"
#include "apps/vision/evaluate.h"
#include "apps/vision/task.h"

namespace weft::vision {
namespace {

// The best test accuracies of any epoch, and those epochs: the paper reports these.
using BestEpochs = std::map<std::string, double>;

void take(BestEpochs& best, i64 epoch, const Measure& measured) {
  for (const std::string key : {"top_1", "top_5"}) {
    const double reached = figure_of(measured, key);
    if (best.contains(key) && reached <= best.at(key)) continue;
    best[key] = reached;
    best[key + "_epoch"] = static_cast<double>(epoch);
  }
}

void describe(const Model& model, const Parts& parts, i64 steps, const RunOptions& run,
              Progress& progress) {
  const Settings& s = model.settings;
  const auto count = [](const auto& list) { return grouped(static_cast<i64>(list.size())); };
  progress.print(fmt::format(
      "data   {}: {} classes; {} pictures to train, {} to validate, {} to test", s.dataset,
      model.classes.size(), count(parts.train), count(parts.validation), count(parts.test)));
  std::string name = "vision transformer";
  if (!s.preset.empty()) {
    std::vector<std::string> names;
    each_network_setting(s.model, [&](const char* setting, const auto&, const Limits&,
                                      const char*) { names.emplace_back(setting); });
    name = name_of_preset(configuration_of(s), configuration_of(preset(s.preset)), names, progress);
  }
  progress.print(fmt::format(
      "model  {}: {} attention, patches of {}, width {}, layers {}, heads {}; {} parameters", name,
      s.model.attention, s.model.patch, s.model.width, s.model.layers, s.model.heads,
      grouped(parameter_count(*model.network))));
  progress.print(fmt::format("train  {} steps of {} pictures, {}, learning rate {:g} ({}), seed {}",
                             grouped(steps), s.batch, s.optimizer, s.lr, s.schedule, s.seed));
  print_precision(s.model.precision, run, progress);
  progress.print(kept(run));
}

Json test_line(const char* kind, i64 epoch, const Measure& measured) {
  Json line = {{"kind", kind}, {"epoch", epoch}, {"loss", measured.loss}};
  for (const Figure& figure : measured.figures) line[figure.key] = figure.value;
  return line;
}

// Scores the model on the test part.
Measure score(const Model& model, const Parts& parts, const TrainResult& result,
              const BestEpochs& epochs, const Advance& advance, RunFolder& folder,
              Progress& progress) {
  progress.print(fmt::format("best   epoch {}: validation {:.2f} % top-1, {:.2f} % top-5",
                             result.best_epoch, figure_of(result.best, "top_1"),
                             figure_of(result.best, "top_5")));
  const Measure tested = measure(model, parts.set.test, parts.test, advance);
  progress.print(fmt::format("test   {:.2f} % top-1, {:.2f} % top-5, loss {:.4f}, of that epoch",
                             figure_of(tested, "top_1"), figure_of(tested, "top_5"), tested.loss));
  Json line = test_line("test", result.best_epoch, tested);
  if (!epochs.empty()) {
    progress.print(
        fmt::format("       {:.2f} % top-1 (epoch {}) and {:.2f} % top-5 (epoch {}) are the best "
                    "of any epoch: the paper's figures, which select on the test pictures",
                    epochs.at("top_1"), epochs.at("top_1_epoch"), epochs.at("top_5"),
                    epochs.at("top_5_epoch")));
    line["most_top_1"] = epochs.at("top_1");
    line["most_top_5"] = epochs.at("top_5");
  }
  folder.log(line);
  return tested;
}

Trained train_once(const TrainCommand& command) {
  const Device device = device_of(command.run, command.settings.model.precision);
  Settings settings = command.settings;
  const PictureSet set = load_pictures(settings.data, settings.dataset);
  settings.dataset = set.name;
  const Parts parts = divide(set, settings);
  const Model model = new_model(settings, set.classes);
  move_to(*model.network, device);
  TrainingBatches batches(set.train, parts.train, normalisation_of(set.name), settings.batch,
                          settings.seed, settings.augment);
  Task task = training_task(model, parts, batches);
  Progress progress(command.run.silent());
  const auto folder = run_folder(command.run);
  folder->show_columns(
      metric_columns(task.round, task.score.key, {"top_1", "top_5", "most_top_1", "most_top_5"}));
  BestEpochs epochs;
  task.notes = &epochs;
  if (settings.test_epochs) {
    task.validated = [&](i64 epoch) {
      const Measure tested = measure(model, parts.set.test, parts.test, [&](double share) {
        progress.update(fmt::format("test {:.0f} %", 100 * share));
      });
      folder->log(test_line("test_epoch", epoch, tested));
      take(epochs, epoch, tested);
    };
  }
  const TrainOptions options = training_options(settings, batches.epoch_steps(), command.run);
  if (const auto ended = ended_before(*folder, task, options, progress)) return *ended;
  describe(model, parts, options.steps, command.run, progress);
  return run_training(
      task, options, settings, command.run, *folder, progress,
      [&](const TrainResult& result, const Advance& advance) {
        return score(model, parts, result, epochs, advance, *folder, progress).figures;
      });
}

}  // namespace

int run_train(const TrainCommand& command) {
  check(command.settings);
  check_together(command.settings);
  if (command.run.print_config) return print_config(command);
  return train_replicas(command, train_once);
}

}  // namespace weft::vision
