#include "apps/lra/commands.h"

#include <filesystem>

#include "apps/command_line/config_file.h"
#include "apps/command_line/configuration.h"
#include "apps/command_line/device_option.h"
#include "apps/lra/evaluate.h"
#include "apps/lra/task.h"
#include "apps/training/run.h"

namespace weft::lra {
namespace {

std::string baseline_text(const std::vector<Figure>& always) {
  std::string text;
  for (const Figure& figure : always) {
    text += fmt::format("{}{:.1f} {}", text.empty() ? "" : ", ", figure.value, figure.unit);
  }
  return text;
}

const char* examples_of(const Sequences& part) {
  return part.together == 1 ? "sequences" : "pairs";
}

// The object with the baselines behind its other members.
Json with_figures(Json::Object object, const std::vector<Figure>& figures) {
  for (const Figure& figure : figures) object.emplace_back(figure.key, figure.value);
  return object;
}

void describe(const Model& model, const SequenceTask& data, i64 steps, const RunOptions& run,
              Progress& progress) {
  const Settings& s = model.settings;
  progress.print(
      fmt::format("data   {} ({}): {} classes; {} {} to train, {} to validate, {} to test; "
                  "mean length {}",
                  s.task, data.source, data.classes.size(), grouped(data.train.count()),
                  examples_of(data.train), grouped(data.validation.count()),
                  grouped(data.test.count()), static_cast<i64>(data.train.mean_length())));
  progress.print(
      fmt::format("       of the test part right: {}", baseline_text(baselines(data, data.test))));
  progress.print(fmt::format("model  {} attention, width {}, layers {}, heads {}; {} parameters",
                             s.model.attention, s.model.width, s.model.layers, s.model.heads,
                             grouped(parameter_count(*model.network))));
  progress.print(fmt::format("train  {} steps of {} {}, {}, learning rate {:g} ({}), seed {}",
                             grouped(steps), s.batch, examples_of(data.train), s.optimizer, s.lr,
                             s.schedule, s.seed));
  print_precision(s.model.precision, run, progress);
  progress.print(kept(run));
}

// Scores the model on the test part.
Measure score(const Model& model, const SequenceTask& data, const TrainResult& result,
              const Advance& advance, RunFolder& folder, Progress& progress) {
  progress.print(fmt::format("best   round {}: validation {:.2f} % right", result.best_epoch,
                             figure_of(result.best, "accuracy")));
  const Measure tested = measure(model, data.test, advance);
  const std::vector<Figure> always = baselines(data, data.test);
  progress.print(fmt::format("test   {:.2f} % right, loss {:.4f}, of that round; {}",
                             figure_of(tested, "accuracy"), tested.loss, baseline_text(always)));
  folder.log(with_figures({{"kind", "test"},
                           {"round", result.best_epoch},
                           {"loss", tested.loss},
                           {"accuracy", figure_of(tested, "accuracy")}},
                          always));
  return tested;
}

Trained train_once(const TrainCommand& command) {
  const Device device = device_of(command.run, command.settings.model.precision);
  const SequenceTask data = load_task(command.settings);
  const Model model = new_model(command.settings);
  const Settings& settings = model.settings;
  move_to(*model.network, device);
  SequenceBatches batches(data.train, settings.model.length, settings.batch, settings.seed);
  const Task task = training_task(model, data, batches);
  Progress progress(command.run.silent());
  const auto folder = run_folder(command.run);
  std::vector<std::string> columns = {"accuracy"};
  for (const Figure& figure : baselines(data, data.test)) columns.push_back(figure.key);
  folder->show_columns(metric_columns(task.round, task.score.key, columns));
  const TrainOptions options = train_options(settings, settings.round_steps, command.run);
  if (const auto ended = ended_before(*folder, task, options, progress)) return *ended;
  describe(model, data, options.steps, command.run, progress);
  return run_training(task, options, settings, command.run, *folder, progress,
                      [&](const TrainResult& result, const Advance& advance) {
                        return score(model, data, result, advance, *folder, progress).figures;
                      });
}

}  // namespace

int run_train(const TrainCommand& command) {
  check(command.settings);
  check_together(command.settings);
  if (command.run.print_config) return print_config(command);
  return train_replicas(command, train_once);
}

int run_eval(const EvalCommand& command) {
  const Device device = device_named(command.device);
  const Model model = read_model(command.checkpoint);
  move_to(*model.network, device);
  Settings settings = model.settings;
  if (!command.data.empty()) settings.data = command.data;
  const SequenceTask data = load_task(settings);
  const Sequences& part = data.part(command.split);
  Progress progress;
  const Measure measured = measure(model, part, [&](double share) {
    if (!command.json) progress.update(fmt::format("{} {:.0f} %", command.split, 100 * share));
  });
  progress.clear();
  const std::vector<Figure> always = baselines(data, part);
  if (!command.json) {
    fmt::print("{} split: {:.2f} % right, loss {:.6f} over {} {}; {}\n", command.split,
               figure_of(measured, "accuracy"), measured.loss, grouped(part.count()),
               examples_of(part), baseline_text(always));
    return 0;
  }
  print_json(with_figures({{"checkpoint", command.checkpoint},
                           {"attention", settings.model.attention},
                           {"data", settings.data},
                           {"split", command.split},
                           {"sequences", part.count()},
                           {"loss", measured.loss},
                           {"accuracy", figure_of(measured, "accuracy")}},
                          always));
  return 0;
}

int run_data(const DataCommand& command) {
  check(command.settings);
  require(command.out.empty() || !std::filesystem::exists(command.out) ||
              std::filesystem::is_empty(command.out),
          "{}: exists already; choose another --out", command.out);
  const SequenceTask data = load_task(command.settings);
  const std::vector<Figure> always = baselines(data, data.test);
  if (!command.out.empty()) write_data(command.settings.task, data, command.out);
  const double mean = data.train.mean_length();
  if (command.json) {
    print_json(with_figures({{"task", command.settings.task},
                             {"data", data.source},
                             {"train", data.train.count()},
                             {"validation", data.validation.count()},
                             {"test", data.test.count()},
                             {"mean_length", mean}},
                            always));
    return 0;
  }
  fmt::print("{} ({}): {} {} to train, {} to validate, {} to test; mean length {:.1f}\n",
             command.settings.task, data.source, grouped(data.train.count()),
             examples_of(data.train), grouped(data.validation.count()), grouped(data.test.count()),
             mean);
  fmt::print("of the test part right: {}\n", baseline_text(always));
  return 0;
}

int run_info(const InfoCommand& command) {
  if (command.checkpoint.empty()) check(command.settings);
  const Model model =
      command.checkpoint.empty() ? new_model(command.settings) : read_model(command.checkpoint);
  return print_information(model, command.json);
}

}  // namespace weft::lra
