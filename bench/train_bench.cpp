// Tokens a second of one training step (forward, backward, optimizer) of charlm's, wordlm's and
// vision's presets, beside the ceiling that the machine's GEMM rate sets.
//
//     build/bench/train_bench [--preset NAME] [--attention SPEC] [--bare] [--threads N]
//     [--device cuda] [--batch N] [--json]
//
// With --attention the preset's model has that mechanism instead of its own. On a CUDA device steps
// are queued as charlm queues them, by default as replays of one graph. The step is timed as in the
// preset, and language models also bare: without dropout and adaptive computation time. The ceiling
// is the rate of a 2048³ product on one thread, times the threads, over the operations that Task
// counts.
#include <cstdio>
#include <random>

#include <nlohmann/json.hpp>

#include "apps/charlm/evaluate.h"
#include "apps/charlm/task.h"
#include "apps/command_line/device_option.h"
#include "apps/command_line/options.h"
#include "apps/data/text.h"
#include "apps/training/queued_steps.h"
#include "apps/vision/evaluate.h"
#include "apps/vision/task.h"
#include "apps/wordlm/evaluate.h"
#include "apps/wordlm/task.h"
#include "autograd/tape.h"
#include "bench/ceilings.h"
#include "bench/measure.h"
#include "nn/optimizer.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace weft::bench {

namespace {

// The steps of a task, which are timed.
struct Subject {
  std::string preset, attention;
  bool bare;
  i64 batch, length, parameters;
  std::string optimizer;
  double lr;
};

// Settings of all rows.
struct Options {
  i64 batch = 0;           // 0: the preset's
  std::string attention;   // empty: the preset's
  Device device;
  bool graph = true;
  double seconds = 3, rate = 0;  // rate: of the machine's products, operations a second
};

nlohmann::ordered_json row(const Subject& subject, const Task& task, const Options& options) {
  const std::vector<NamedParameter>& parameters = task.parameters;
  const auto optimizer = make_optimizer(subject.optimizer, parameters);
  TrainOptions training;
  training.graph = options.graph;
  training.learning_rate = [&](i64) { return subject.lr; };
  const auto queue = queue_for(task, training, *optimizer);
  std::uint32_t number = 0;
  std::uint64_t system_allocations = 0;
  std::vector<double> processor;  // processor time of every step
  const auto step = [&] {
    ++number;
    if (queue) {  // when the queue is full, a step ends for each that begins
      queue->submit(number);
      if (!queue->room()) queue->take();
    } else {
      for (const NamedParameter& p : parameters) p.variable.place()->clear();
      Tape tape;
      tape.backward(task.loss(task.batch(number), {.number = number}).loss);
      optimizer->step(subject.lr);
    }
    if (number == 3) system_allocations = allocator(options.device).counts().system_allocations;
  };
  const auto timed_step = [&] {
    const double begin = processor_seconds();
    step();
    processor.push_back(processor_seconds() - begin);
  };
  constexpr int warm_up = 5;
  const Quantiles times = measure(timed_step, warm_up, 15, options.seconds);
  processor.erase(processor.begin(), processor.begin() + warm_up);
  while (queue && queue->any()) queue->take();
  const auto tokens = static_cast<double>(subject.batch * subject.length);
  const double work = task.operations / tokens;  // of products, per token
  const double ceiling = options.rate * (options.device == Device{} ? threads() : 1) / work;
  nlohmann::ordered_json json = machine(options.device);
  json.update({{"preset", subject.preset},
               {"attention", subject.attention},
               {"bare", subject.bare},
               {"graph", queue && options.graph},
               {"batch", subject.batch},
               {"length", subject.length},
               {"parameters", subject.parameters},
               {"tokens_per_second", tokens / times.median},
               {"ms_median", 1e3 * times.median},
               {"cpu_ms_median", 1e3 * quantiles(processor).median},
               {"ms_p10", 1e3 * times.p10},
               {"ms_p90", 1e3 * times.p90},
               {"products_per_token", work},
               {"gemm_gflops", options.rate / 1e9},
               {"ceiling_tokens_per_second", ceiling},
               {"share_of_ceiling", tokens / times.median / ceiling},
               {"system_allocations_after_step_3",
                allocator(options.device).counts().system_allocations - system_allocations},
               {"peak_bytes", allocator(options.device).counts().peak}});
  return json;
}

// A step of a language model; task(model) is its training.
template <class SomeSettings, class NewModel, class NewTask>
nlohmann::ordered_json language_row(SomeSettings settings, bool bare, const Options& options,
                                    const NewModel& new_model, const NewTask& new_task) {
  if (options.batch > 0) settings.batch = options.batch;
  UniversalTransformerConfig& m = settings.model;
  if (!options.attention.empty()) m.attention = options.attention;
  if (bare) {
    m.attention_dropout = m.residual_dropout = m.output_dropout = 0;
    m.act = false;
  }
  const auto model = new_model(settings);
  move_to(*model.network, options.device);
  const Task task = new_task(model);
  return row({settings.preset, m.attention, bare, settings.batch, m.length,
              parameter_count(*model.network), settings.optimizer, settings.lr},
             task, options);
}

nlohmann::ordered_json charlm_row(const std::string& name, bool bare, const Options& options) {
  const charlm::Settings settings = charlm::preset(name);
  const Text text = load_text("builtin", "text8");
  const Parts parts = split_text(text, parse_split("60/30/10"), settings.model.length);
  return language_row(
      settings, bare, options,
      [&](const charlm::Settings& s) { return charlm::new_model(s, text); },
      [&](const charlm::Model& model) { return charlm::training_task(model, parts); });
}

// On random pieces, like vision's pictures: the data does not change the time of a step.
nlohmann::ordered_json wordlm_row(const std::string& name, bool bare, const Options& options) {
  const wordlm::Settings settings = wordlm::preset(name);
  std::mt19937 generator(1);
  std::uniform_int_distribution<std::int32_t> piece(
      1, static_cast<std::int32_t>(settings.model.vocabulary) - 1);
  std::vector<std::int32_t> ids(
      static_cast<std::size_t>(10 * settings.batch * settings.model.length));
  for (std::int32_t& id : ids) id = piece(generator);
  const WordChunks chunks(ids, settings.model.length, 0);
  return language_row(
      settings, bare, options,
      [](const wordlm::Settings& s) { return wordlm::new_model(s, nullptr); },
      [&](const wordlm::Model& model) { return wordlm::training_task(model, chunks, chunks); });
}

// On pictures that are drawn: their content does not change the time of a step.
nlohmann::ordered_json vision_row(const std::string& name, const Options& options) {
  vision::Settings settings = vision::preset(name);
  if (options.batch > 0) settings.batch = options.batch;
  if (!options.attention.empty()) settings.model.attention = options.attention;
  settings.validation = settings.batch;
  const vision::Model model = vision::new_model(settings);
  move_to(*model.network, options.device);
  const PictureSet set{settings.dataset, drawn_pictures(1, 10 * settings.batch), {}, {}};
  const vision::Parts parts = vision::divide(set, settings);
  TrainingBatches batches(set.train, parts.train, normalisation_of(set.name), settings.batch,
                          settings.seed);
  const Task task = vision::training_task(model, parts, batches);
  return row({name, settings.model.attention, false, settings.batch, settings.model.tokens(),
              parameter_count(*model.network), settings.optimizer, settings.lr},
             task, options);
}

void print(const nlohmann::ordered_json& result, bool json) {
  if (json) {
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print(
        "{:<34}{:<6} {:8.0f} tokens/s  {:8.2f} ms, {:8.2f} of processor  {:3.0f} % of {:.0f}\n",
        result["preset"].get<std::string>(), result["bare"].get<bool>() ? "bare" : "whole",
        result["tokens_per_second"].get<double>(), result["ms_median"].get<double>(),
        result["cpu_ms_median"].get<double>(), 100 * result["share_of_ceiling"].get<double>(),
        result["ceiling_tokens_per_second"].get<double>());
  }
  std::fflush(stdout);
}

int main_of(int argc, char** argv) {
  Program app("Times a training step of charlm's, wordlm's and vision's presets.");
  Options options;
  std::string wanted = "all", device = "cpu";
  bool bare = false, json = false;
  int thread_count = 1;
  app.add_option("--preset", wanted, "a preset of an app; all: those of charlm")
      .show_default();
  app.add_option("--attention", options.attention,
                 "a mechanism, as name:option=value,option=value; default: the preset's");
  add_plugin_option(app);
  app.add_flag("--bare", bare, "measure only without dropout and adaptive computation time");
  app.add_option("--threads", thread_count).between(1, 4096).show_default();
  app.add_option("--device", device, "cpu, cuda or cuda:N").show_default();
  app.add_flag("--graph,!--no-graph", options.graph, "on a CUDA device: capture one step and replay it");
  app.add_option("--batch", options.batch, "examples per step; default: the preset's")
      .between(1, 65536);
  app.add_option("--seconds", options.seconds, "shortest time of a measurement, in seconds")
      .show_default();
  app.add_flag("--json", json, "print one JSON object per line");
  if (const auto status = app.parse(argc, argv)) return *status;
  set_threads(thread_count);
  options.device = device_named(device);
  options.rate = gemm_rate(options.device);
  std::vector<std::string> names = {"all"};
  const auto each = [&](const std::vector<std::string>& presets, bool among_all, const auto& row) {
    for (const std::string& name : presets) {
      names.push_back(name);
      if (wanted == name || (wanted == "all" && among_all)) row(name);
    }
  };
  const auto language = [&](auto* row) {
    return [&, row](const std::string& name) {
      for (const bool without : {false, true}) {
        if (without || !bare) print(row(name, without, options), json);
      }
    };
  };
  each(charlm::presets(), true, language(charlm_row));
  each(wordlm::presets(), false, language(wordlm_row));
  each(vision::presets(), false,
       [&](const std::string& name) { print(vision_row(name, options), json); });
  check_word("preset", wanted, names);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_main("train_bench", weft::bench::main_of, argc, argv);
}
