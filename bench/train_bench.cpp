// Tokens a second of one training step (forward, backward, optimizer) of charlm's and vision's
// presets, beside the ceiling that the machine's GEMM rate sets.
//
//     build/bench/train_bench [--preset NAME] [--bare] [--threads N] [--device cuda] [--batch N]
//     [--json]
//
// On a CUDA device steps are queued as charlm queues them, by default as replays of one graph.
// The step is timed as the preset has it, and charlm's also bare: no dropout, no adaptive
// computation time. The arithmetic counts the products alone, three times the forward pass (seven
// products for five of attention's two), causal pairs counted once; the ceiling is the rate of a
// 2048³ product on one thread, times the threads.
#include <cstdio>

#include <CLI/CLI.hpp>

#include "apps/charlm/evaluate.h"
#include "apps/common/device_option.h"
#include "apps/common/queued_steps.h"
#include "apps/common/text.h"
#include "apps/vision/evaluate.h"
#include "autograd/tape.h"
#include "bench/ceilings.h"
#include "bench/measure.h"
#include "nn/optimizer.h"
#include "ops/attention/mechanism.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace weft::bench {

using namespace charlm;
namespace {

// Additions and multiplications of all products of one step, per token.
double products_per_token(const Settings& settings, const std::vector<NamedParameter>& parameters) {
  const UniversalTransformerConfig& m = settings.model;
  double forward = 0;
  for (const NamedParameter& p : parameters) {
    const bool inner = p.name.starts_with("block") || p.name.starts_with("convolution");
    const Shape& shape = p.variable.shape();
    const bool looked_up = p.name == "position" || p.name == "depth" || p.name.starts_with("halting");
    if (shape.rank() < 2 || looked_up) continue;
    forward += 2.0 * static_cast<double>(shape.count()) * (inner && m.shared ? m.depth : 1);
  }
  const AttentionSpec spec(m.attention);
  const std::int64_t e = m.width / m.heads;
  const AttentionSizes sizes{.B = 1, .N = m.length, .S = m.length, .H = m.heads, .E = e, .M = e,
                             .d = m.width};
  const AttentionCost cost = spec.mechanism().cost(spec, sizes, true, DType::f32);
  return 3 * forward + (cost.forward_operations + cost.backward_operations) *
                           static_cast<double>(m.depth) / static_cast<double>(m.length);
}

double products_per_token(const vision::Settings& settings,
                          const std::vector<NamedParameter>& parameters) {
  const VisionTransformerConfig& m = settings.model;
  double forward = 0;
  for (const NamedParameter& p : parameters) {
    const bool of_picture = p.name == "head.weight";
    if (p.variable.shape().rank() < 2 || p.name == "position") continue;
    forward += 2.0 * static_cast<double>(p.variable.shape().count()) /
               static_cast<double>(of_picture ? m.tokens() : 1);
  }
  const AttentionSpec spec(m.attention);
  const std::int64_t e = m.width / m.heads;
  const AttentionSizes sizes{.B = 1,
                             .N = m.tokens(),
                             .S = m.tokens(),
                             .H = m.heads,
                             .E = e,
                             .M = m.value_width > 0 ? m.value_width / m.heads : e,
                             .d = m.width};
  const AttentionCost cost = spec.mechanism().cost(spec, sizes, false, DType::f32);
  return 3 * forward + (cost.forward_operations + cost.backward_operations) *
                           static_cast<double>(m.layers) / static_cast<double>(m.tokens());
}

// What is timed: the steps of a task.
struct Subject {
  std::string preset;
  bool bare;
  std::int64_t batch, length, parameters;
  std::string optimizer;
  double lr, work;  // additions and multiplications of products, per token
};

nlohmann::ordered_json row(const Subject& subject, const Task& task, Device device, bool graph,
                           double rate, double seconds) {
  const std::vector<NamedParameter>& parameters = task.parameters;
  const auto optimizer = make_optimizer(subject.optimizer, parameters);
  TrainOptions options;
  options.graph = graph;
  options.learning_rate = [&](std::int64_t) { return subject.lr; };
  const auto queue = queue_for(task, options, *optimizer);
  std::uint32_t number = 0;
  std::uint64_t system_allocations = 0;
  const auto step = [&] {
    ++number;
    if (queue) {  // where the queue is full, a step ends for each that begins
      queue->submit(number);
      if (!queue->room()) queue->take();
    } else {
      for (const NamedParameter& p : parameters) p.variable.place()->clear();
      Tape tape;
      tape.backward(task.loss(task.batch(number), {.number = number}).loss);
      optimizer->step(subject.lr);
    }
    if (number == 3) system_allocations = allocator(device).counts().system_allocations;
  };
  const Quantiles times = measure(step, 5, 15, seconds);
  while (queue && queue->any()) queue->take();
  const auto tokens = static_cast<double>(subject.batch * subject.length);
  const double ceiling = rate * (device == Device{} ? threads() : 1) / subject.work;
  nlohmann::ordered_json json = machine(device);
  json.update({{"preset", subject.preset},
               {"bare", subject.bare},
               {"graph", queue && graph},
               {"batch", subject.batch},
               {"length", subject.length},
               {"parameters", subject.parameters},
               {"tokens_per_second", tokens / times.median},
               {"ms_median", 1e3 * times.median},
               {"ms_p10", 1e3 * times.p10},
               {"ms_p90", 1e3 * times.p90},
               {"products_per_token", subject.work},
               {"gemm_gflops", rate / 1e9},
               {"ceiling_tokens_per_second", ceiling},
               {"share_of_ceiling", tokens / times.median / ceiling},
               {"system_allocations_after_step_3",
                allocator(device).counts().system_allocations - system_allocations},
               {"peak_bytes", allocator(device).counts().peak}});
  return json;
}

nlohmann::ordered_json charlm_row(const std::string& name, bool bare, std::int64_t batch,
                                  Device device, bool graph, double rate, double seconds) {
  Settings settings = preset(name);
  if (batch > 0) settings.batch = batch;
  if (bare) {
    settings.model.attention_dropout = settings.model.residual_dropout = 0;
    settings.model.output_dropout = 0;
    settings.model.act = false;
  }
  const Model model = new_model(settings);
  move_to(*model.network, device);
  const Text text = load_text("builtin", "text8");
  const Parts parts = split_text(text, parse_split("60/30/10"), settings.model.length);
  const Task task = training_task(model, parts);
  const Subject subject{name,
                        bare,
                        settings.batch,
                        settings.model.length,
                        parameter_count(*model.network),
                        settings.optimizer,
                        settings.lr,
                        products_per_token(settings, task.parameters)};
  return row(subject, task, device, graph, rate, seconds);
}

// On pictures that are drawn: what they show does not change the time of a step.
nlohmann::ordered_json vision_row(const std::string& name, std::int64_t batch, Device device,
                                  bool graph, double rate, double seconds) {
  vision::Settings settings = vision::preset(name);
  if (batch > 0) settings.batch = batch;
  settings.validation = settings.batch;
  const vision::Model model = vision::new_model(settings);
  move_to(*model.network, device);
  const PictureSet set{settings.dataset, drawn_pictures(1, 10 * settings.batch), {}, {}};
  const vision::Parts parts = vision::divide(set, settings);
  TrainingBatches batches(set.train, parts.train, normalisation_of(set.name), settings.batch,
                          settings.seed);
  const Task task = vision::training_task(model, parts, batches);
  const Subject subject{name,
                        false,
                        settings.batch,
                        settings.model.tokens(),
                        parameter_count(*model.network),
                        settings.optimizer,
                        settings.lr,
                        products_per_token(settings, task.parameters)};
  return row(subject, task, device, graph, rate, seconds);
}

void print(const nlohmann::ordered_json& result, bool json) {
  if (json) {
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print("{:<30}{:<6} {:8.0f} tokens/s  {:6.2f} ms  {:3.0f} % of {:.0f}\n",
               result["preset"].get<std::string>(), result["bare"].get<bool>() ? "bare" : "whole",
               result["tokens_per_second"].get<double>(), result["ms_median"].get<double>(),
               100 * result["share_of_ceiling"].get<double>(),
               result["ceiling_tokens_per_second"].get<double>());
  }
  std::fflush(stdout);
}

int main_of(int argc, char** argv) {
  CLI::App app{"times one training step of charlm's and vision's presets"};
  std::string wanted = "all";
  bool bare = false, json = false;
  int thread_count = 1;
  std::int64_t batch = 0;
  double seconds = 3;
  std::string device_text = "cpu";
  bool graph = true;
  app.add_option("--preset", wanted, "one of charlm's or vision's presets; all: charlm's")
      ->capture_default_str();
  app.add_flag("--bare", bare, "only without dropout and adaptive computation time");
  app.add_option("--threads", thread_count)->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--device", device_text, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_flag("--graph,!--no-graph", graph, "on a CUDA device: replay one captured step");
  app.add_option("--batch", batch, "examples in a step; by default the preset's")
      ->check(CLI::Range(1, 65536));
  app.add_option("--seconds", seconds, "least time of a measurement")->capture_default_str();
  app.add_flag("--json", json, "one object a line");
  CLI11_PARSE(app, argc, argv);
  set_threads(thread_count);
  const Device device = device_named(device_text);
  const double rate = gemm_rate(device);
  for (const Preset& known : presets()) {
    if (wanted != "all" && wanted != known.name) continue;
    for (const bool without : {false, true}) {
      if (bare && !without) continue;
      print(charlm_row(known.name, without, batch, device, graph, rate, seconds), json);
    }
  }
  for (const vision::Preset& known : vision::presets()) {
    if (wanted == known.name) {
      print(vision_row(known.name, batch, device, graph, rate, seconds), json);
      return 0;
    }
  }
  if (wanted != "all") preset(wanted);  // an unknown name is an error
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_main("train_bench", weft::bench::main_of, argc, argv);
}
